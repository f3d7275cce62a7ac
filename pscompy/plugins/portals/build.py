"""Describes the extension `pscompy.plugins.portals._native` to cffi.

The driver opens libraries of Portals 4 at run time: one of the machine, and libsoftni.so, the
software NI (network interface) of the package pscompy_softni. The driver and the software NI are
compiled with the machine's <portals4.h> if there is one, else with that of pscompy_softni.
"""

from pathlib import Path

import cffi

FOLDER = Path("pscompy/plugins/portals")
LIBRARY = Path("softni/pscompy_softni/libsoftni.so")  # setup.py builds it

ffibuilder = cffi.FFI()
ffibuilder.cdef(
    "uintptr_t portals_transport(void); int portals_has_library(void);"
    "void portals_software_at(const char *path);"
)
ffibuilder.set_source(
    "pscompy.plugins.portals._native",
    """
    #include "pscompy/transport/transport.h"
    uintptr_t portals_transport(void);
    int portals_has_library(void);
    void portals_software_at(const char *path);
    """,
    sources=sorted(
        str(path)
        for folder in (FOLDER, FOLDER / "psptl")
        for path in folder.glob("*.c")
        if path.name != "_native.c"
    ),
    include_dirs=["."],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
)
