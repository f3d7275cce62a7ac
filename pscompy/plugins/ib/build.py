"""Describes the extension `pscompy.plugins.ib._native` to cffi."""

import cffi

HEADERS = ("infiniband/verbs.h",)
FOLDER = "pscompy/plugins/ib"
NAMES = (
    "transport",
    "settings",
    "sleep",
    "ep",
    "meet",
    "am",
    "receive",
    "ring",
    "mem",
    "cache",
    "proof",
    "window",
    "mend",
    "choose",
    "device",
    "queue",
)

ffibuilder = cffi.FFI()
ffibuilder.cdef("uintptr_t ib_transport(void);")
ffibuilder.set_source(
    "pscompy.plugins.ib._native",
    """
    #include "pscompy/core/transport.h"
    uintptr_t ib_transport(void);
    """,
    sources=[f"{FOLDER}/{name}.c" for name in NAMES],
    include_dirs=["."],
    libraries=["ibverbs"],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
)
