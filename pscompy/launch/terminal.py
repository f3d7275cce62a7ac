"""The launcher's three standard files, shared by the ranks.

Whole lines of all ranks are written to stdout and stderr as fast as these are
read. If one of them is slow, only the ranks that print to it wait. Rank 0 gets
stdin.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial

from pscompy.launch.event_loop import WRITE, Loop
from pscompy.launch.rank import Rank
from pscompy.launch.streams import Sink, Stream, Typed


class Terminal:
    """Connects ranks to the launcher's standard files through a loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._sinks = _open_sinks()
        self._streams: dict[int, Stream] = {}  # streams by the descriptor of the rank's pipe
        self._typed: Typed | None = None

    def stdin(self) -> int:
        """Return a new descriptor for rank 0's stdin: a duplicate of the launcher's stdin, or a
        pipe if the launcher's stdin is a terminal."""
        if not os.isatty(0):
            return os.dup(0)
        reader, writer = os.pipe()
        self._typed = Typed(0, writer)
        self._loop.watch(0, self._on_typed)
        return reader

    def attach(self, rank: Rank, label: Callable[[], bytes]) -> None:
        """Begin to forward a rank's output, with `label()` before each line."""
        for fd, sink in zip((rank.stdout, rank.stderr), self._sinks, strict=True):
            self._streams[fd] = Stream(fd, sink, label)

    def attach_stderr(self, fd: int) -> None:
        """Begin to forward the output that arrives at `fd` to stderr."""
        self._streams[fd] = Stream(fd, self._sinks[1])

    def fed(self, label: Callable[[], bytes]) -> tuple[Stream, Stream]:
        """Return the streams for stdout and stderr of a rank on another host. They get the output
        by `Stream.feed`."""
        out, err = self._sinks
        return Stream(-1, out, label), Stream(-1, err, label)

    @property
    def full(self) -> bool:
        return any(sink.full for sink in self._sinks)

    @property
    def broken(self) -> bool:
        return any(sink.broken for sink in self._sinks)

    @property
    def flaw(self) -> str:
        """Why stdout cannot be written, such as a full disk; "" if it can, or its reader has gone
        away."""
        error = self._sinks[0].error
        return "" if error is None or error.errno == errno.EPIPE else os.strerror(error.errno or 0)

    def finish(self, rank: Rank) -> None:
        """Pass on the output that a rank that has ended left in its pipes."""
        self.drain(rank.stdout, rank.stderr)

    def drain(self, *fds: int) -> None:
        """Pass on the output that can be read from these descriptors without waiting."""
        for fd in fds:
            if fd in self._streams:
                self._streams[fd].drain()

    def say(self, line: str) -> None:
        """Write a message of the launcher's own to stderr."""
        self._sinks[1].put(self, line.encode(errors="replace") + b"\n")

    def balance(self) -> None:
        """Watch the descriptors that are to be read or written now; must be called before each
        `Loop.turn`."""
        for sink in set(self._sinks):
            if sink.pending:
                self._loop.watch(sink.fd, partial(self._on_writable, sink), WRITE)
        for fd, stream in list(self._streams.items()):
            if stream.sink.broken:  # the rank gets SIGPIPE, as without the launcher
                self._close_stream(fd)
            elif stream.sink.full:
                self._loop.unwatch(fd)
            else:
                self._loop.watch(fd, partial(self._on_output, fd))

    def flush(self) -> None:
        """After the job: write all output, waiting for slow readers."""
        for fd, stream in list(self._streams.items()):
            stream.drain()
            self._close_stream(fd)
        for sink in self._sinks:
            while sink.pending:
                sink.write()

    def _on_output(self, fd: int) -> None:
        if self._streams[fd].read() == 0:
            self._close_stream(fd)

    def _close_stream(self, fd: int) -> None:
        self._loop.unwatch(fd)
        self._streams.pop(fd).close()

    def _on_writable(self, sink: Sink) -> None:
        sink.write()
        if not sink.pending:
            self._loop.unwatch(sink.fd)

    def _on_typed(self) -> None:
        """Continue to forward terminal input: the terminal has a line, or rank 0's pipe has
        room."""
        typed = self._typed
        if typed is None:
            return
        alive = typed.write() if typed.pending else typed.read()
        self._loop.unwatch(typed.terminal)
        self._loop.unwatch(typed.pipe)
        if not alive:
            self._typed = None
            typed.close()
        elif typed.pending:
            self._loop.watch(typed.pipe, self._on_typed, WRITE)
        else:
            self._loop.watch(typed.terminal, self._on_typed)


def _open_sinks() -> tuple[Sink, Sink]:
    """Return the sinks for stdout and stderr; a common one if both are the same file."""
    out = Sink(1)
    return out, out if os.path.sameopenfile(1, 2) else Sink(2)
