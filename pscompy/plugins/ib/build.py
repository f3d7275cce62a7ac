"""Describes the extension `pscompy.plugins.ib._native` to cffi."""

from pathlib import Path

import cffi

HEADERS = ("infiniband/verbs.h",)
FOLDER = "pscompy/plugins/ib"

ffibuilder = cffi.FFI()
ffibuilder.cdef("uintptr_t ib_transport(void);")
ffibuilder.set_source(
    "pscompy.plugins.ib._native",
    """
    #include "pscompy/transport/transport.h"
    uintptr_t ib_transport(void);
    """,
    sources=sorted(str(path) for path in Path(FOLDER).glob("*.c") if path.name != "_native.c"),
    include_dirs=["."],
    libraries=["ibverbs", "dl"],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
)
