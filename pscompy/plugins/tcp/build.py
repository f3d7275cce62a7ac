"""Describes the extension `pscompy.plugins.tcp._native` to cffi."""

import cffi

FOLDER = "pscompy/plugins/tcp"
NAMES = (
    "transport",
    "poll",
    "settings",
    "network",
    "address",
    "listen",
    "connect",
    "ep",
    "send",
    "stream",
)

ffibuilder = cffi.FFI()
ffibuilder.cdef("uintptr_t tcp_transport(void);")
ffibuilder.set_source(
    "pscompy.plugins.tcp._native",
    """
    #include "pscompy/core/transport.h"
    uintptr_t tcp_transport(void);
    """,
    sources=[f"{FOLDER}/{name}.c" for name in NAMES],
    include_dirs=["."],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
)
