"""Builds pscompy.plugins.loop._native."""

from glob import glob

from cffi import FFI

ffibuilder = FFI()
ffibuilder.cdef("uintptr_t loop_transport(void);")
ffibuilder.set_source(
    "pscompy.plugins.loop._native",
    "#include <stdint.h>\nuintptr_t loop_transport(void);",
    sources=[
        path for path in sorted(glob("pscompy/plugins/loop/*.c")) if not path.endswith("_native.c")
    ],
    include_dirs=["."],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
)
