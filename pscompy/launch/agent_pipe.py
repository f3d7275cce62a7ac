"""The pipe between the launcher and its agent on a host: lines of JSON over two pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import time
from collections.abc import Callable
from typing import Any

from pscompy.launch.event_loop import WRITE, Loop

_CHUNK = 65536
_FULL = 1 << 18  # bytes of queued output above which ranks' output is not read


class AgentPipe:
    """One end of the pipe. Calls `on_record` with each record (a list, one line of JSON) that
    arrives, and `on_end` once when the pipe has ended."""

    def __init__(
        self,
        loop: Loop,
        reader: int,
        writer: int,
        on_record: Callable[[list[Any]], None],
        on_end: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._writer = writer
        self._on_record = on_record
        self._on_end = on_end
        self._closed = False
        self._in = b""
        self._out = bytearray(b"\n")  # a newline first: ends a line that a login shell has printed
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self.listen(True)

    @property
    def full(self) -> bool:
        return len(self._out) > _FULL

    def listen(self, on: bool) -> None:
        """Read records from now on, or if not `on`, leave them in the pipe."""
        if on and not self._closed:
            self._loop.watch(self._reader, self._read)
        else:
            self._loop.unwatch(self._reader)

    def send(self, *record: Any) -> None:
        """Queue a record. Bytes in it must be packed by `pack`."""
        self._out += json.dumps(record).encode() + b"\n"
        self._loop.watch(self._writer, self._write, WRITE)

    def flush(self, until: float) -> None:
        """Send everything, waiting for a slow reader, but not longer than until this monotonic
        time."""
        writable = select.poll()
        writable.register(self._writer, select.POLLOUT)
        while self._out and writable.poll(1000 * max(0.0, until - time.monotonic())):
            self._write()

    def close(self) -> None:
        """Stop watching the descriptors; the caller closes them."""
        self._closed = True
        self._loop.unwatch(self._reader)
        self._loop.unwatch(self._writer)

    def _write(self) -> None:
        try:
            with memoryview(self._out) as view:
                done = os.write(self._writer, view[:_CHUNK])
            del self._out[:done]
        except BlockingIOError:
            return
        except OSError:  # the reader is gone, which the next read reports
            self._out.clear()
        if not self._out:
            self._loop.unwatch(self._writer)

    def _read(self) -> None:
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._in = (self._in + data).split(b"\n")
        for line in lines:
            if line.startswith(b'["'):  # a login shell may print other lines
                self._on_record(json.loads(line))
        if not data:
            self.close()
            self._on_end()


def pack(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unpack(text: str) -> bytes:
    return base64.b64decode(text)
