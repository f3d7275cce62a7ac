"""The base class of transports written in Python: its docstrings are the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol


class Link:
    """A connection between this process and one peer. pscompy creates it and passes it to the
    transport, which may store its own data in `state`."""

    state: Any = None


class Caller(Protocol):
    """Receiver of the calls that a transport makes: the pump."""

    def watch(self, fileobj: Any, read: Callable[[], object], link: Link | None) -> None: ...
    def unwatch(self, fileobj: Any) -> None: ...
    def accepted(self) -> Link: ...
    def received(self, link: Link, data: bytes) -> None: ...


class PythonTransport:
    """A transport written in Python: it carries frames of bytes between two processes.

    Subclass it, implement `open`, `connect`, `send`, `disconnect` and `close`, and declare it
    with `Transport(name, priority, python=YourClass)`. pscompy makes one instance per session
    and calls it on one thread, its pump. No method may block; a transport waits only by
    passing a descriptor to `watch`. If a method blocks nevertheless, or a link is not connected
    within PSP_CANDIDATE_TIMEOUT seconds, another transport is tried, and the reason names the
    method.

    The transport must be reliable and in order on each link. pscompy does the rest: it splits
    and joins the frames of a byte stream, makes both ends prove that they are the expected peer
    before a link is used, and stops sending and receiving while the other side is slow.

    An `OSError` raised by a call for a link means that the link is lost, and its text becomes
    the reason that the user reads; `BlockingIOError` raised by `send` or a `read` means "not
    now". Any other exception is an error of the transport: it is logged, and the link ends; if
    a `read` without a link raises it, the whole transport ends. An `OSError` that says that
    descriptors or memory are short only pauses such a `read`.
    """

    latency: float = 50e-6
    """One-way latency of a small frame in seconds. An estimate; the cost model uses it."""

    bandwidth: float = 1e9
    """Bytes per second. An estimate."""

    max_frame: int = 1 << 16
    """Longest frame that is passed to `send`, in bytes; at least 2048."""

    queue: int = 32
    """Frames that may be queued on each link, in each direction."""

    stream: bool = False
    """If true, the link is a stream of bytes: `send` may take a part of its data, and `received`
    accepts any piece. If false, a frame is sent and received as a whole."""

    node_only: bool = False
    """If true, the transport reaches only processes of the same node."""

    _caller: Caller

    # ---- methods that a transport implements ----

    def open(self, settings: Mapping[str, Any]) -> bytes:
        """Acquire the resources that all links share, start to listen, and return the address that
        is passed to a peer's `connect` (at most 1000 bytes).

        `settings` are the values of the variables that the transport declares, by their names
        without prefix. An exception means that the transport cannot be used; the text of an
        `OSError`, or the type and the text of another one, is the reason that `pscompy info` and a
        failed connection show.
        """
        raise NotImplementedError

    def connect(self, link: Link, address: bytes) -> None:
        """Start to connect the link to the peer that has this address. The connection may still be
        in progress on return: `send` then raises BlockingIOError until it is established. The
        address was sent by a peer: check it before it is used."""
        raise NotImplementedError

    def send(self, link: Link, data: memoryview) -> int:
        """Send, and return how many bytes were taken: all, or fewer if `stream`. The transport is
        responsible for the bytes that it took; `data` is valid during the call only. If not all
        were taken, `send` is called with the rest when the descriptor that is watched for this
        link becomes writable."""
        raise NotImplementedError

    def disconnect(self, link: Link) -> None:
        """Release the resources of the link. Called exactly once for every link that was passed to
        `connect` or returned by `accepted`, even if `connect` failed or the link was lost. Bytes
        that were taken before are still delivered to the peer, which then sees the end of the
        link."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the resources of `open`. All links have been disconnected, and no method is
        called afterwards."""
        raise NotImplementedError

    # ---- methods that a transport calls, on the pump's thread or in `open` ----

    def watch(self, fileobj: Any, read: Callable[[], object], link: Link | None = None) -> None:
        """Have `read` called whenever the descriptor (or the object with `fileno()`) is readable,
        until `unwatch` or, with a link, until its `disconnect`. `read` reads once, not until
        nothing is left. Pass `link` for a descriptor that serves one link only: the descriptor
        is then not read while the receiver is slow, and `send` is tried again when it becomes
        writable."""
        self._caller.watch(fileobj, read, link)

    def unwatch(self, fileobj: Any) -> None:
        """Stop watching the descriptor; call this before closing it."""
        self._caller.unwatch(fileobj)

    def accepted(self) -> Link:
        """Call this when a peer has connected. Returns the link to that peer."""
        return self._caller.accepted()

    def received(self, link: Link, data: bytes) -> None:
        """Call this with data that has arrived on the link: a whole frame, or any piece if
        `stream`. Empty data means that the peer has ended the link."""
        self._caller.received(link, data)
