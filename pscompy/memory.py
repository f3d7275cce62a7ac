"""Memory that peers may write and read."""

from __future__ import annotations

import threading
from typing import Any, NoReturn

from pscompy._hot import Worker
from pscompy.core import check, ffi, lib

__all__ = ["MemoryRegion"]

PACKED_MAX = 1024  # longest remote key, bytes


class MemoryRegion:
    """A registered buffer; see `Session.register`. A context manager: leaving it closes."""

    def __init__(self, worker: Worker, buf: Any) -> None:
        """`buf` is C-contiguous and writable, else `BufferError`."""
        self._lock = threading.Lock()
        self._worker = worker
        self._view = ffi.from_buffer(buf, require_writable=True)
        handle = ffi.new("psc_region_t **")
        core = ffi.cast("psc_worker_t *", worker.address)
        check(lib.psc_memory_register(core, self._view, len(self._view), handle), "register")
        self._handle = handle[0]
        self.rkey = self._pack()

    @property
    def nbytes(self) -> int:
        return len(self._view)

    def close(self) -> None:
        """Refuse accesses from now on, and give the buffer back. Idempotent."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None and self._worker.address:
            lib.psc_memory_deregister(handle)
        if handle is not None:
            ffi.release(self._view)

    def _pack(self) -> bytes:
        room = ffi.new("uint8_t[]", PACKED_MAX)
        length = ffi.new("size_t *", PACKED_MAX)
        check(lib.psc_memory_pack(self._handle, room, length), "pack the remote key")
        return bytes(ffi.buffer(room, length[0]))

    def __enter__(self) -> MemoryRegion:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"{self.nbytes} bytes"
        return f"<MemoryRegion {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a MemoryRegion stays in its process: send its rkey instead")
