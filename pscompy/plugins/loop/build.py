"""Describes the extension `pscompy.plugins.loop._native` to cffi."""

from pathlib import Path

import cffi

FOLDER = "pscompy/plugins/loop"

ffibuilder = cffi.FFI()
ffibuilder.cdef("uintptr_t loop_transport(void);")
ffibuilder.set_source(
    "pscompy.plugins.loop._native",
    """
    #include "pscompy/transport/transport.h"
    uintptr_t loop_transport(void);
    """,
    sources=sorted(str(path) for path in Path(FOLDER).glob("*.c") if path.name != "_native.c"),
    include_dirs=["."],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
)
