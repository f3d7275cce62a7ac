"""Output of the ranks, line by line, and terminal input for rank 0.

A `Stream` divides the output of one rank into whole lines. A `Sink` collects
the lines for one file of the launcher and writes them when that file is
writable, so that a slow terminal delays only the ranks that print.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable

_READ = 65536
_WRITE = select.PIPE_BUF  # bytes that a writable pipe accepts without blocking
_FULL = 1 << 18  # bytes queued in a Sink above which the Streams that feed it are not read
_LINE_MAX = 1 << 16  # length in bytes above which a line is passed on in pieces
PIPE_READS = 32  # number of reads, of 32 KiB or more, that empty any pipe without an active writer


class Sink:
    """The launcher's own stdout or stderr."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.error: OSError | None = None  # of a write; then further output is dropped
        self._queue = bytearray()
        # the source of the last line that was put, if it is unfinished, or None
        self._open_line: object = None

    @property
    def broken(self) -> bool:
        return self.error is not None

    @property
    def pending(self) -> bool:
        return bool(self._queue)

    @property
    def full(self) -> bool:
        return len(self._queue) > _FULL

    def put(self, source: object, text: bytes) -> None:
        """Queue text. An unfinished line of another source is ended by a newline first."""
        if self.broken or not text:
            return
        if self._open_line not in (None, source):
            self._queue += b"\n"
        self._queue += text
        self._open_line = None if text.endswith(b"\n") else source

    def write(self) -> None:
        """Write a part of the queue. Does not block if poll() has just reported the file as
        writable."""
        try:
            with memoryview(self._queue) as view:
                done = os.write(self.fd, view[:_WRITE])
            del self._queue[:done]
        except BlockingIOError:  # another process made the file non-blocking
            select.select([], [self.fd], [])
        except OSError as error:
            self.error = error
            self._queue.clear()


class Stream:
    """The stdout or stderr of one rank; `fd` is the reading end of its pipe, -1 if `feed` gets the
    output instead."""

    def __init__(self, fd: int, sink: Sink, label: Callable[[], bytes] = bytes) -> None:
        """`label()` returns the text before each line, which may change."""
        self.fd = fd
        self.sink = sink
        self._label = label
        self._partial = b""
        self._line_begins = True
        if fd >= 0:
            os.set_blocking(fd, False)

    def read(self) -> int | None:
        """Read once and pass on all whole lines. Returns the number of bytes: 0 if the pipe has
        ended, None if it is empty and some process may still write to it."""
        try:
            data = os.read(self.fd, _READ)
        except BlockingIOError:
            return None
        self.feed(data)
        return len(data)

    def feed(self, data: bytes) -> None:
        """Pass on all whole lines of the output; empty data stands for its end."""
        self._partial += data
        cut = self._partial.rfind(b"\n") + 1
        if not data or (cut == 0 and len(self._partial) > _LINE_MAX):
            cut = len(self._partial)
        self._pass_on(cut)

    def drain(self) -> None:
        """Pass on all output that can be read without waiting."""
        for _ in range(PIPE_READS):
            if not self.read():
                break

    def close(self) -> None:
        """Close the pipe, after an unfinished last line was passed on too."""
        self._pass_on(len(self._partial))
        os.close(self.fd)

    def _pass_on(self, cut: int) -> None:
        text, self._partial = self._partial[:cut], self._partial[cut:]
        if text:
            self.sink.put(self, self._labelled(text, self._label()))
            self._line_begins = text.endswith(b"\n")

    def _labelled(self, text: bytes, label: bytes) -> bytes:
        if not label:
            return text
        lines = text.removesuffix(b"\n").split(b"\n")
        first = label if self._line_begins else b""
        joined = first + (b"\n" + label).join(lines)
        return joined + b"\n" if text.endswith(b"\n") else joined


class Typed:
    """Forwards terminal input to rank 0's stdin.

    Only a terminal needs this: the ranks are not in its foreground process
    group and cannot read from it. Rank 0 inherits any other stdin directly.
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
        """Read a line from the terminal. Returns False at the end of input or on an error."""
        try:
            self._queue = os.read(self.terminal, _READ)
        except OSError:  # reading fails if the launcher runs in the background
            return False
        return bool(self._queue)

    def write(self) -> bool:
        """Write the line to rank 0. Returns False if rank 0 has closed its stdin."""
        try:
            self._queue = self._queue[os.write(self.pipe, self._queue) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return True

    def close(self) -> None:
        os.close(self.pipe)
