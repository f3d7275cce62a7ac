"""Describes the extension `pscompy.transport.python._native` to cffi."""

import re
from pathlib import Path

from cffi import FFI

FOLDER = "pscompy/transport/python"
CONSTANTS = (
    "PSC_ERR_CONNECT",
    "PSC_ERR_NO_MEMORY",
    "PSC_ERR_NO_RESOURCE",
    "PSC_ERR_PEER_LOST",
    "PSC_ERR_TRANSPORT",
    "PSC_OK",
    "PSC_PROOF_ANSWER",
    "PSC_PROOF_CHALLENGE",
    "PSC_PROOF_HELLO",
    "PSC_PROOF_NONCE_SIZE",
    "PSC_ROLE_ACCEPTOR",
    "PSC_ROLE_CONNECTOR",
    "PSC_TOKEN_SIZE",
)


def declarations() -> str:
    header = Path(FOLDER, "pump.h").read_text()
    text = "".join(re.findall(r"/\* CDEF BEGIN \*/(.*?)/\* CDEF END \*/", header, re.S))
    for name in ("bridge", "bridge_proof"):
        text = text.replace(f"typedef struct {name} {name}_t;", f"typedef ... {name}_t;")
    return text + "".join(f"static const int {name};\n" for name in CONSTANTS)


ffibuilder = FFI()
ffibuilder.cdef(declarations())
ffibuilder.set_source(
    "pscompy.transport.python._native",
    f'#include "{FOLDER}/pump.h"\n#include "pscompy/transport/kit/token_proof.h"\n',
    sources=sorted(str(path) for path in Path(FOLDER).glob("*.c") if path.name != "_native.c"),
    include_dirs=["."],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
)
