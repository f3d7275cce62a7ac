"""The base class of transports written in Python: its docstrings are the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol


class Link:
    """A way between this process and one peer. pscompy makes it and hands it to the transport,
    which may keep what it needs for it in `state`."""

    state: Any = None


class Caller(Protocol):
    """Who calls the transport: what a transport's calls up go to."""

    def watch(self, fileobj: Any, read: Callable[[], object], link: Link | None) -> None: ...
    def unwatch(self, fileobj: Any) -> None: ...
    def accepted(self) -> Link: ...
    def received(self, link: Link, data: bytes) -> None: ...


class PythonTransport:
    """A transport written in Python: it carries frames of bytes between two processes.

    Subclass it, implement `open`, `connect`, `send`, `disconnect` and `close`, and declare it
    with `Transport(name, priority, python=YourClass)`. pscompy makes one instance per session
    and calls it on one thread, its pump. No method may block; what has to be waited for is a
    descriptor handed to `watch`. Where one blocks all the same, or a link does not come up within
    PSP_CANDIDATE_TIMEOUT seconds, another transport is tried, and the reason names the method.

    The transport needs to be reliable and in order on each link. Everything else is done for
    it: frames of a byte stream are cut and joined, both ends prove that they are who was meant
    before a link is used, sending and receiving are held up while the other side is slow.

    An `OSError` out of a call about a link means that the link is lost, and its text becomes
    the reason that the user reads; `BlockingIOError` out of `send` or of a `read` means "not
    now". Any other exception is a mistake of the transport: it is logged, and the link ends; out
    of a `read` that serves no link it ends the whole transport.
    """

    latency: float = 50e-6
    """Seconds that a small frame takes, one way. An estimate; the cost model uses it."""

    bandwidth: float = 1e9
    """Bytes per second. An estimate."""

    max_frame: int = 1 << 16
    """The longest frame that `send` is given, in bytes; at least 2048."""

    queue: int = 32
    """Frames that may wait on each link, in each direction."""

    stream: bool = False
    """True: the link is a stream of bytes. `send` may take a part of what it is given, and
    `received` takes any piece. False: a frame is sent and received as a whole."""

    node_only: bool = False
    """True: it reaches processes of the same node only, and is not tried for others."""

    _caller: Caller

    # ---- what a transport implements ----

    def open(self, settings: Mapping[str, Any]) -> bytes:
        """Acquire what all links need, begin to listen, and return the address that a peer's
        `connect` gets (at most 1000 bytes).

        `settings` are the values of the variables that the transport declares, by their names
        without prefix. An exception means that it cannot be used; its text is the reason that
        `pscompy info` and a failed connection show.
        """
        raise NotImplementedError

    def connect(self, link: Link, address: bytes) -> None:
        """Begin to connect the link to the peer that has this address. It may be under way on
        return: `send` says BlockingIOError until it is done. The address was sent by a peer:
        believe nothing of it before it is checked."""
        raise NotImplementedError

    def send(self, link: Link, data: memoryview) -> int:
        """Send, and return how many bytes were taken: all, or fewer if `stream`. Taken bytes
        are the transport's; `data` is valid during the call only. If not all were taken, the
        rest is offered again when the descriptor watched for this link can be written to."""
        raise NotImplementedError

    def disconnect(self, link: Link) -> None:
        """Release what the link has. Called exactly once for every link that was connected or
        accepted, also if that failed or the link was lost. What was taken before still goes to
        the peer, who then sees the end of the link."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what `open` acquired. No link is left; nothing is called afterwards."""
        raise NotImplementedError

    # ---- what it calls, on the pump's thread or in `open` ----

    def watch(self, fileobj: Any, read: Callable[[], object], link: Link | None = None) -> None:
        """Have `read` called whenever the descriptor (or the object with `fileno()`) can be
        read from, until `unwatch` or, with a link, until its `disconnect`. `read` reads once,
        not until nothing is left. A descriptor that serves one link is named together with it:
        then it is not read while the receiver is behind, and it is what `send` waits for."""
        self._caller.watch(fileobj, read, link)

    def unwatch(self, fileobj: Any) -> None:
        """Watch it no longer; call this before closing it."""
        self._caller.unwatch(fileobj)

    def accepted(self) -> Link:
        """A peer has connected to us: the link to it."""
        return self._caller.accepted()

    def received(self, link: Link, data: bytes) -> None:
        """This has come over the link: a whole frame, or any piece if `stream`. Empty: the
        peer has ended it."""
        self._caller.received(link, data)
