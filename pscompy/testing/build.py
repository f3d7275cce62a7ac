"""Builds pscompy.testing._faults."""

import re
from pathlib import Path

from cffi import FFI

FOLDER = "pscompy/testing"
header = Path(FOLDER, "faults.h").read_text()
declarations = "".join(re.findall(r"/\* CDEF BEGIN \*/(.*?)/\* CDEF END \*/", header, re.S))

ffibuilder = FFI()
ffibuilder.cdef(declarations.replace("typedef struct faults faults_t;", "typedef ... faults_t;"))
ffibuilder.set_source(
    "pscompy.testing._faults",
    f'#include "{FOLDER}/faults.h"\n',
    sources=[f"{FOLDER}/faults.c", f"{FOLDER}/upcalls.c"],
    include_dirs=["."],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O2", "-fvisibility=hidden"],
)
