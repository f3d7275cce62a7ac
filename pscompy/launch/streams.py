"""What the ranks print, line by line, and what the user types, for rank 0.

A `Stream` cuts the output of one rank into whole lines; a `Sink` collects
them for one file of the launcher and writes when that file can take it, so
that a slow terminal stops nothing but the ranks that print.
"""

from __future__ import annotations

import os
import select

_READ = 65536
_WRITE = select.PIPE_BUF  # a pipe that polls writable takes so many at once
_FULL = 1 << 18  # bytes in a sink at which its streams pause
_LINE_MAX = 1 << 16  # a longer line is passed on in pieces
_PIPE_READS = 32  # empties any pipe that nobody goes on filling


class Sink:
    """The launcher's own stdout or stderr."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.broken = False  # nobody reads it any more
        self._queue = bytearray()
        self._open_line: object = None  # who wrote the unfinished last line

    @property
    def pending(self) -> bool:
        return bool(self._queue)

    @property
    def full(self) -> bool:
        return len(self._queue) > _FULL

    def put(self, source: object, text: bytes) -> None:
        """Queue text; what another source left unfinished gets its newline."""
        if self.broken or not text:
            return
        if self._open_line not in (None, source):
            self._queue += b"\n"
        self._queue += text
        self._open_line = None if text.endswith(b"\n") else source

    def write(self) -> None:
        """Write a part; does not block if the file just polled writable."""
        try:
            with memoryview(self._queue) as view:
                done = os.write(self.fd, view[:_WRITE])
            del self._queue[:done]
        except BlockingIOError:  # somebody else made the file so
            select.select([], [self.fd], [])
        except OSError:
            self.broken = True
            self._queue.clear()


class Stream:
    """The stdout or stderr of one rank: the reading end of a pipe."""

    def __init__(self, fd: int, sink: Sink, label: bytes) -> None:
        self.fd = fd
        self.sink = sink
        self._label = label
        self._partial = b""
        self._line_begins = True
        os.set_blocking(fd, False)

    def read(self) -> bool:
        """Pass on what is there as far as it is whole lines; False: no more."""
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:
            return False
        self._partial += data
        cut = self._partial.rfind(b"\n") + 1
        if not data or (cut == 0 and len(self._partial) > _LINE_MAX):
            cut = len(self._partial)
        self._pass_on(cut)
        return bool(data)

    def drain(self) -> None:
        """Pass on all that can be had without waiting."""
        for _ in range(_PIPE_READS):
            if not self.read():
                break

    def close(self) -> None:
        """Pass on an unfinished last line too."""
        self._pass_on(len(self._partial))
        os.close(self.fd)

    def _pass_on(self, cut: int) -> None:
        text, self._partial = self._partial[:cut], self._partial[cut:]
        if text:
            self.sink.put(self, self._labelled(text) if self._label else text)
            self._line_begins = text.endswith(b"\n")

    def _labelled(self, text: bytes) -> bytes:
        lines = text.removesuffix(b"\n").split(b"\n")
        first = self._label if self._line_begins else b""
        joined = first + (b"\n" + self._label).join(lines)
        return joined + b"\n" if text.endswith(b"\n") else joined


class Typed:
    """What is typed at the terminal, on its way to rank 0's stdin.

    Only a terminal needs this: the ranks are not its foreground group and may
    not read from it. Any other stdin rank 0 inherits as it is.
    """

    def __init__(self, terminal: int, pipe: int) -> None:
        self.terminal = terminal
        self.pipe = pipe
        self._queue = b""
        os.set_blocking(pipe, False)

    @property
    def pending(self) -> bool:
        return bool(self._queue)

    def read(self) -> bool:
        """Take a line from the terminal; False at its end."""
        try:
            self._queue = os.read(self.terminal, _READ)
        except OSError:  # the launcher runs in the background
            return False
        return bool(self._queue)

    def write(self) -> bool:
        """Give it to rank 0; False when that reads no more."""
        try:
            self._queue = self._queue[os.write(self.pipe, self._queue) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return True

    def close(self) -> None:
        os.close(self.pipe)
