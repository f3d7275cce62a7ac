"""Describes the extension `pscompy.plugins.loop._native` to cffi."""

import cffi

FOLDER = "pscompy/plugins/loop"
NAMES = ("transport", "ep", "mem")

ffibuilder = cffi.FFI()
ffibuilder.cdef("uintptr_t loop_transport(void);")
ffibuilder.set_source(
    "pscompy.plugins.loop._native",
    """
    #include "pscompy/core/transport.h"
    uintptr_t loop_transport(void);
    """,
    sources=[f"{FOLDER}/{name}.c" for name in NAMES],
    include_dirs=["."],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
)
