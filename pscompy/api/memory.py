"""Memory that is registered with the transports: for accesses of peers, or for many messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from pscompy.api import process
from pscompy.api.c._binding import Worker
from pscompy.api.c.guard import guard, may_wait
from pscompy.core import check, ffi, lib

K = TypeVar("K", bound="_Known")


__all__ = ["MemoryRegion", "Pin"]

PACKED_MAX = 1024  # longest remote key, bytes
PAUSE = 0.0005  # seconds between checks whether a peer has finished its copy

_kept: list[memoryview] = []  # memory that a peer may write to as long as this process lives


class _Known:
    """A buffer that is registered until it, or its session, is closed, also if the program drops
    it. A context manager: leaving it closes it."""

    def __init__(self, worker: Worker, buf: Any, closed: Callable[[Any], object]) -> None:
        """Register `buf`; `closed(self)` is called once, when the buffer is closed."""
        self._worker = worker
        self._closed = closed
        self._view = _exported(buf)
        self._handle = self._register()

    @property
    def nbytes(self) -> int:
        return self._view.nbytes

    def close(self) -> None:
        """Return the buffer to the program. Idempotent.

        If a peer is copying at the moment, waits until it has finished, or its process has ended.
        Afterwards no peer writes to the buffer or reads it. A finalizer or a signal handler that
        must not wait has the buffer closed in the background.
        """
        if not may_wait():
            process.in_background(self.close)
            return
        while not self._deregistered():
            time.sleep(PAUSE)
        self._view.release()
        self._closed(self)

    def _deregistered(self) -> bool:
        with guard:
            if self._handle is not None and not self._deregister(self._handle):
                return False
            self._handle = None
        return True

    def _forget(self) -> None:
        """Drop the handle: the core is about to be destroyed, and frees it itself."""
        with guard:
            self._handle = None

    def _keep(self) -> None:
        """Keep the buffer alive until this process ends, because a peer may still write to it.
        Called instead of `close`."""
        _kept.append(self._view)
        self._closed(self)

    def _register(self) -> Any:
        """Register the buffer. Returns the core's handle of the registration."""
        raise NotImplementedError

    def _deregister(self, handle: Any) -> bool:
        """Deregister the buffer. Returns False if a peer is copying at the moment: the caller must
        try again."""
        raise NotImplementedError

    @property
    def _core(self) -> Any:
        return ffi.cast("psc_worker_t *", self._worker.address)

    def __enter__(self: K) -> K:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"{self.nbytes} bytes"
        return f"<{type(self).__name__} {state}>"


class MemoryRegion(_Known):
    """A buffer that peers may write and read; see `Session.register`.

    It stays registered until it, or its session, is closed, also if the program drops it, because
    peers may hold its key. After it is closed, accesses are refused, also those that have begun. A
    context manager.
    """

    def __init__(self, worker: Worker, buf: Any, closed: Callable[[Any], object]) -> None:
        super().__init__(worker, buf, closed)
        try:
            self.rkey = self._pack()
        except BaseException:
            self.close()
            raise

    def _register(self) -> Any:
        handle = ffi.new("psc_region_t **")
        with ffi.from_buffer(self._view, require_writable=True) as base:
            check(lib.psc_memory_register(self._core, base, self.nbytes, handle), "register")
        return handle[0]

    def _deregister(self, handle: Any) -> bool:
        return bool(lib.psc_memory_deregister(handle) != lib.PSC_INPROGRESS)

    def _pack(self) -> bytes:
        packed = ffi.new("uint8_t[]", PACKED_MAX)
        length = ffi.new("size_t *", PACKED_MAX)
        check(lib.psc_memory_pack(self._handle, packed, length), "pack the remote key")
        return bytes(ffi.buffer(packed, length[0]))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a MemoryRegion stays in its process: send its rkey instead")


class Pin(_Known):
    """A buffer whose messages need no registration of their own; see `Session.pin`. A context
    manager."""

    def _register(self) -> Any:
        handle = ffi.new("psc_block_t **")
        with ffi.from_buffer(self._view, require_writable=True) as base:
            check(lib.psc_memory_pin(self._core, base, self.nbytes, handle), "pin")
        return handle[0]

    def _deregister(self, handle: Any) -> bool:
        lib.psc_memory_unpin(self._core, handle)
        return True


def _exported(buf: Any) -> memoryview:
    """Return the buffer as bytes, exported until the view is released."""
    try:
        view = memoryview(buf)
    except TypeError:
        raise TypeError(f"a region is one bytes-like object, not {type(buf).__name__}") from None
    except (ValueError, BufferError) as error:
        if not hasattr(buf, "dtype"):
            raise
        raise TypeError(
            f"this {type(buf).__name__} does not give its memory ({error}): register a view of"
            " plain numbers, for example array.view('i8')"
        ) from None
    # names of fields stand between colons
    if any("O" in part for part in view.format.split(":")[::2]):
        raise TypeError(f"this {type(buf).__name__} holds Python objects, which peers cannot use")
    if view.readonly:
        raise BufferError(f"this {type(buf).__name__} is read-only, and peers may write it")
    if not view.c_contiguous:
        raise BufferError(f"this {type(buf).__name__} is not C-contiguous: register a copy")
    return view.cast("B") if view.nbytes else view
