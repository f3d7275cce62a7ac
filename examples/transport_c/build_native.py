"""Describes pscompy_stream._native to cffi: its C files, and pscompy's headers."""

from cffi import FFI

import pscompy

ffibuilder = FFI()
ffibuilder.cdef("uintptr_t stream_transport(void);")
ffibuilder.set_source(
    "pscompy_stream._native",
    "#include <stdint.h>\nuintptr_t stream_transport(void);",
    sources=[f"src/pscompy_stream/{name}.c" for name in ("stream", "connect", "messages")],
    depends=["src/pscompy_stream/stream.h"],
    include_dirs=[pscompy.get_include()],
    extra_compile_args=["-std=c11", "-D_GNU_SOURCE", "-O2", "-fvisibility=hidden"],
)
