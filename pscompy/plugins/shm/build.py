"""Describes the extension `pscompy.plugins.shm._native` to cffi."""

import cffi

FOLDER = "pscompy/plugins/shm"
NAMES = (
    "transport",
    "sleep",
    "door",
    "link",
    "mail",
    "trial",
    "ep",
    "am",
    "mem",
    "map",
    "share",
    "ring",
)

ffibuilder = cffi.FFI()
ffibuilder.cdef("uintptr_t shm_transport(void);")
ffibuilder.set_source(
    "pscompy.plugins.shm._native",
    """
    #include "pscompy/core/transport.h"
    uintptr_t shm_transport(void);
    """,
    sources=[f"{FOLDER}/{name}.c" for name in NAMES],
    include_dirs=["."],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
)
