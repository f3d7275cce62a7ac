"""Describes the core's extension to cffi: its declarations are the text between
the CDEF marks of the headers, so everything is declared once."""

import re
from pathlib import Path

import cffi

FOLDER = "pscompy/core"
PROTO = "pscompy/proto"
COLL = "pscompy/coll"
CONTRACT = "pscompy/transport"
HEADERS = (f"{CONTRACT}/transport.h", f"{FOLDER}/api.h", f"{FOLDER}/control.h")
OPAQUE = """
typedef ... psc_worker_t;
typedef ... psc_conn_t;
typedef ... psc_lane_t;
typedef ... psc_region_t;
typedef ... psc_block_t;
"""


def declarations() -> str:
    text = "".join(Path(name).read_text() for name in HEADERS)
    return OPAQUE + "".join(re.findall(r"/\* CDEF BEGIN \*/(.*?)/\* CDEF END \*/", text, re.S))


def constants() -> str:
    """Return, for cffi, the declarations of the macros and statuses that Python needs."""
    transport = Path(CONTRACT, "transport.h").read_text()
    names = re.findall(
        r"^#define (PSC_(?:CAP_\w+|TOKEN_SIZE|ADDRESS_MAX|REASON_MAX))\b", transport, re.M
    )
    statuses = re.findall(r"^    X\((\w+), ", Path(CONTRACT, "status.h").read_text(), re.M)
    names += [f"PSC_{name}" for name in statuses]
    names += ["PSC_ROLE_CONNECTOR", "PSC_ROLE_ACCEPTOR", "PSC_ROLE_SELF"]
    contexts = ("NUMBER", "PLAIN", "USER", "END", "OBJECTS", "CHUNKS", "ACTIONS", "AM", "RMA")
    names += [*(f"PSC_CONTEXT_{name}" for name in contexts), "PSC_COLL_TOLD", "PSC_COLL_DIFFERS"]
    return "".join(f"static const long long {name};\n" for name in names)


ffibuilder = cffi.FFI()
ffibuilder.cdef(declarations() + constants() + "const char *psc_status_string(int status);\n")
ffibuilder.set_source(
    "pscompy.core._core",
    '#include "pscompy/core/control.h"\n',
    sources=sorted(
        str(path)
        for folder in (FOLDER, PROTO, COLL)
        for path in Path(folder).rglob("*.c")
        if path.name != "_core.c"
    ),
    include_dirs=["."],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-flto=auto", "-fvisibility=hidden"],
    extra_link_args=["-flto=auto"],
)
