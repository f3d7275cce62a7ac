"""Builds pscompy.plugins.tcp._native."""

from glob import glob

from cffi import FFI

ffibuilder = FFI()
ffibuilder.cdef("uintptr_t tcp_transport(void);")
ffibuilder.set_source(
    "pscompy.plugins.tcp._native",
    "#include <stdint.h>\nuintptr_t tcp_transport(void);",
    sources=[
        path for path in sorted(glob("pscompy/plugins/tcp/*.c")) if not path.endswith("_native.c")
    ],
    include_dirs=["."],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O3", "-fvisibility=hidden"],
)
