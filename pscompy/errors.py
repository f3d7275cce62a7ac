"""The exceptions of pscompy, and the exception for each status of the C core.

Every exception is a `PscomError`, can be pickled, and has `peer`: the name of the
process that it is about, or None. The error of a collective operation has `rank`: the
number, in the communicator, of the rank on which it has occurred. If Python has a
built-in exception of the same meaning, the class derives from it too, so that
`except TimeoutError` works.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from concurrent.futures import CancelledError
from typing import Any

__all__ = [
    "PscomError",
    "ConfigError",
    "ConnectError",
    "AuthError",
    "NameInUse",
    "VersionMismatch",
    "ProtocolError",
    "PeerLost",
    "Closed",
    "OutOfDescriptors",
    "TransportError",
    "Unsupported",
    "Truncated",
    "OutOfBounds",
    "NoMemory",
    "Timeout",
    "Cancelled",
    "ParcelError",
    "RemoteError",
    "from_status",
]


class PscomError(Exception):
    """The base of all errors of pscompy."""

    rank: int | None = None

    def __init__(self, message: str = "", *, peer: str | None = None) -> None:
        super().__init__(message)
        self.peer = peer


class ConfigError(PscomError, ValueError):
    """A setting has a value that is not allowed.

    `name` is the variable (with PSP_), `value` the value (None if it is a
    secret), `allowed` a description of the allowed values.
    """

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        value: str | None = None,
        allowed: str | None = None,
    ) -> None:
        super().__init__(message)
        self.name = name
        self.value = value
        self.allowed = allowed


class ConnectError(PscomError, ConnectionError):
    """A connection could not be made.

    `candidates` maps each transport that was considered to the reason why it
    is not used.
    """

    def __init__(
        self,
        message: str = "",
        *,
        peer: str | None = None,
        candidates: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, peer=peer)
        self.candidates = dict(candidates or {})


class AuthError(ConnectError):
    """The two sides do not hold the same key."""


class NameInUse(ConnectError):
    """Another session of the job has the same name."""


class VersionMismatch(ConnectError):
    """The two sides have no version of the wire protocol in common."""


class ProtocolError(PscomError):
    """The peer sent something that the protocol does not allow."""


class PeerLost(PscomError, ConnectionResetError):
    """The peer's process has ended, or the network to it has failed."""


class Closed(PscomError):
    """The session or connection was closed, by this process or by the peer."""


class OutOfDescriptors(PscomError, OSError):
    """The process has no file descriptor left; the message says how to raise the limit."""

    def __init__(self, message: str = "", *, peer: str | None = None) -> None:
        super().__init__(message, peer=peer)
        self.errno = errno.EMFILE


class TransportError(PscomError):
    """The fabric reported an error."""


class Unsupported(PscomError):
    """The transport, or this build, does not support the operation."""


class Truncated(PscomError):
    """The message was longer than the buffer; `nbytes` is its true length."""

    def __init__(self, message: str = "", *, peer: str | None = None, nbytes: int = 0) -> None:
        super().__init__(message, peer=peer)
        self.nbytes = nbytes


class Mismatch(PscomError):
    """The ranks have called different collective operations (`PSP_COLL_CHECK=1`)."""


class OutOfBounds(PscomError, IndexError):
    """A put or a get of `nbytes` bytes at `offset` exceeds the peer's region of `size` bytes."""

    def __init__(
        self,
        message: str = "",
        *,
        peer: str | None = None,
        offset: int = 0,
        nbytes: int = 0,
        size: int = 0,
    ) -> None:
        super().__init__(message, peer=peer)
        self.offset = offset
        self.nbytes = nbytes
        self.size = size


class NoMemory(PscomError, MemoryError):
    """Memory for a message of `nbytes` bytes cannot be allocated, here or at the receiving peer.

    A message that could not be received stays in the queue: receive it into a buffer of your own.
    """

    def __init__(self, message: str = "", *, peer: str | None = None, nbytes: int = 0) -> None:
        super().__init__(message, peer=peer)
        self.nbytes = nbytes


class Timeout(PscomError, TimeoutError):
    """The timeout has passed.

    `request` is the operation that is still in flight, or None; it is not
    pickled.
    """

    def __init__(
        self, message: str = "", *, peer: str | None = None, request: object | None = None
    ) -> None:
        super().__init__(message, peer=peer)
        self.request = request

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, {**self.__dict__, "request": None}


class Cancelled(PscomError, CancelledError):
    """The request was cancelled."""


class ParcelError(PscomError):
    """An object that arrived cannot be reconstructed, or is not allowed; `__cause__` says why."""


class RemoteError(PscomError):
    """An action has raised an exception that cannot be reconstructed locally; the text is its
    traceback."""


def describe(error: BaseException) -> str:
    """Return any exception in one line: its type and its text."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def shown(value: object) -> str:
    """Return the repr of a value of the program, for the text of an error. A value that has none,
    such as a number of too many digits, is shown as its type."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


# status -> exception and text; the numbers and texts are those of transport/status.h.
_STATUS: dict[int, tuple[type[PscomError], str]] = {
    -1: (TransportError, "no resource now, try again later"),
    -2: (PscomError, "invalid argument"),
    -3: (Unsupported, "not supported"),
    -4: (NoMemory, "out of memory"),
    -5: (TransportError, "the fabric reported an error"),
    -6: (ConnectError, "the connection could not be made"),
    -7: (PeerLost, "the peer is gone"),
    -8: (Closed, "closed"),
    -9: (Truncated, "the message is longer than the buffer"),
    -10: (Timeout, "timed out"),
    -11: (Cancelled, "cancelled"),
    -12: (ProtocolError, "the peer broke the protocol"),
    -13: (PscomError, "interrupted by a signal"),
    -14: (Closed, "inherited through fork; open a new session in this process"),
    -15: (PscomError, "no remote key of this job, or one that was altered"),
    -16: (OutOfBounds, "outside of the remote memory"),
    -17: (Closed, "the region was closed by its owner"),
}


def from_status(status: int, what: str, **kwargs: Any) -> PscomError:
    """Return the exception for a negative status of the core.

    `what` is the operation that failed; `kwargs` are those of the exception's
    class (`peer`, `nbytes`, `candidates`, `request`).
    """
    kind, text = _STATUS.get(status, (PscomError, f"unknown status {status}"))
    if kind is OutOfBounds and kwargs:
        text = "{nbytes} bytes at offset {offset} exceed the peer's region of {size} bytes"
        text = text.format_map(kwargs)
    elif nbytes := kwargs.get("nbytes"):
        text += " for a message of" if kind is NoMemory else ", it has"
        text += f" {nbytes} bytes"
    return kind(f"{what}: {text}", **kwargs)
