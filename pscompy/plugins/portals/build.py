"""Describes the extension `pscompy.plugins.portals._native` to cffi.

The software NI is always in it; the driver over the system's library where its header is found,
and that library is opened at run time.
"""

from pathlib import Path

import cffi

FOLDER = "pscompy/plugins/portals"

ffibuilder = cffi.FFI()
ffibuilder.cdef("uintptr_t portals_transport(void); int portals_has_library(void);")
ffibuilder.set_source(
    "pscompy.plugins.portals._native",
    """
    #include "pscompy/transport/transport.h"
    uintptr_t portals_transport(void);
    int portals_has_library(void);
    """,
    sources=sorted(str(path) for path in Path(FOLDER).rglob("*.c") if path.name != "_native.c"),
    include_dirs=["."],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
)
