"""Builds pscompy_gateway._native: the transport `gateway`, and the C code that forwards packets in
a gateway process."""

import re
from pathlib import Path

from cffi import FFI

FOLDER = "gateway/pscompy_gateway"
HEADERS = ("transport/note_queue.h", "transport/transport.h", "daemon/hub.h")
CONSTANTS = tuple(f"GW_NOTE_{kind}" for kind in ("UP", "DOWN", "LOST", "ROUTE", "TICK"))


def declarations() -> str:
    text = "".join(Path(FOLDER, name).read_text() for name in HEADERS)
    opaque = "typedef ... gw_agent_t;\ntypedef ... gw_hub_t;\n"
    pieces = re.findall(r"/\* CDEF BEGIN \*/(.*?)/\* CDEF END \*/", text, re.S)
    return opaque + "".join(pieces) + "".join(f"static const int {name};\n" for name in CONSTANTS)


ffibuilder = FFI()
ffibuilder.cdef(declarations())
ffibuilder.set_source(
    "pscompy_gateway._native",
    "".join(f'#include "{FOLDER}/{name}"\n' for name in HEADERS),
    sources=sorted(str(path) for path in Path(FOLDER).rglob("*.c") if path.name != "_native.c"),
    include_dirs=["."],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
)
