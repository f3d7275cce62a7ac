"""The awaited operation in words: for the text of a `Timeout`, and for repr(request).

The extension calls `operation` and `timed_out`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pscompy.api import process
from pscompy.api.c import _binding
from pscompy.api.connection import Connection, _OtherContext
from pscompy.api.request import ANY_TAG, Request, Status
from pscompy.api.timeouts import as_float
from pscompy.core import lib
from pscompy.errors import PscomError, Timeout

# the collectives, in the order of psc_coll_t
COLLECTIVES = (
    *("barrier", "bcast", "reduce", "allreduce", "scan", "exscan", "reduce_scatter"),
    *("gather", "scatter", "allgather", "alltoall"),
)
_CALLS = {
    0: ("a bytes message", "recv()"),
    lib.PSC_CONTEXT_OBJECTS: ("an object", "recv_obj(tag={})"),
}


def operation(verb: str, origin: Any, context: int, tag: int) -> str:
    """Return the operation in words, such as "receive from 1 with tag 3"."""
    peer = _peer(origin)
    verb = _verb(verb, context)
    if verb == "event":
        return _event(origin)
    if verb in COLLECTIVES:
        return f"{verb} of {origin!r}"
    towards = "to" if verb in ("send", "put", "am_send") else "from"
    words = f"{verb} {towards} {peer}"
    if verb not in ("send", "receive", "probe"):
        return words
    if context & ~lib.PSC_CONTEXT_NUMBER == lib.PSC_CONTEXT_OBJECTS:
        words = f"{verb} of an object {towards} {peer}"
    return f"{words} with {'any tag' if tag == ANY_TAG else f'tag {tag}'}"


def timed_out(
    worker: _binding.Worker,
    verb: str,
    origin: Any,
    context: int,
    tag: int,
    seconds: float | None,
    request: Request | None,
) -> Timeout:
    """Return the exception for an operation that has not completed within `seconds`."""
    waited, words = as_float(seconds) or 0.0, operation(verb, origin, context, tag)
    parts = [f"{words}: not done within {waited:g} s"]
    if cause := _why_not_connected(origin):
        parts.append(f"the last attempt to connect: {cause}")
    verb = _verb(verb, context)
    sends = verb in ("send", "am_send") or (verb == "event" and isinstance(origin, _OtherContext))
    if verb not in COLLECTIVES:
        parts += _held_back(worker, origin, sends)
    if verb in ("receive", "probe"):
        parts += _unmatched(worker, origin, context)
    made = origin._exception(lib.PSC_ERR_TIMEOUT, 0) if hasattr(origin, "_exception") else None
    peer = getattr(made, "peer", None)
    return Timeout("; ".join(parts), peer=peer, request=request)


def _verb(verb: str, context: int) -> str:
    """Return the verb to show. An event that has a context is the receive of an object, which
    Python completes, so its verb is "receive"."""
    return "receive" if verb == "event" and context else verb


def _event(origin: Any) -> str:
    """Return the words for an event, which is an operation that Python completes."""
    if isinstance(origin, _OtherContext):
        return f"send of an object to {origin.peer}"
    if isinstance(origin, Connection):
        return f"connecting to {origin.peer}"
    return "event"


def _peer(origin: Any) -> str:
    if isinstance(origin, Connection):
        return origin.peer
    return "a peer" if isinstance(origin, _binding.Connection) else "any peer"


def _why_not_connected(origin: Any) -> PscomError | None:
    attempt = origin._record.attempt if isinstance(origin, Connection) else None
    return attempt.last_error if attempt is not None else None


def _held_back(worker: _binding.Worker, origin: Any, sends: bool) -> Iterator[str]:
    """Describe the connection of which PSP_RTS_MAX holds messages back that the operation may wait
    for: here if it `sends`, else at the peer."""
    if isinstance(origin, Connection):
        record = origin._record
        announced = record.conn.announced()
        if sends and announced.waits:
            yield (
                f"{announced.sent} messages to {record.label} wait for a receive there, and later"
                " ones wait here for them (PSP_RTS_MAX)"
            )
        if announced.peer_waits and not sends:
            yield _peer_waits(record.label, announced.arrived)
    elif not sends:
        yield from _any_peer_waits(worker)


def _any_peer_waits(worker: _binding.Worker) -> Iterator[str]:
    """Describe a connection whose messages a receive from any source may wait for in vain."""
    for session in process.sessions():
        conn = session._core.peer_waits() if session._binding is worker else 0
        for record in session._control.records() if conn else ():
            if record.id == conn:
                arrived = record.conn.announced().arrived
                yield _peer_waits(record.label, arrived)


def _peer_waits(label: str, messages: int) -> str:
    return (
        f"{messages} messages from {label} wait for a receive here, and later ones wait there for"
        " them (PSP_RTS_MAX)"
    )


def _unmatched(worker: _binding.Worker, origin: Any, context: int) -> Iterator[str]:
    """Describe the earliest message and the earliest object that wait to be received from this
    peer, or from any peer if the operation names none."""
    for bits, (kind, call) in _CALLS.items():
        status = None
        with suppress(PscomError):  # raised if the peer is gone
            status = _earliest(worker, origin, context & lib.PSC_CONTEXT_NUMBER | bits)
        if status is not None:
            source = status.source.peer if isinstance(status.source, Connection) else status.source
            takes = call.format(status.tag)
            yield f"{kind} with tag {status.tag} from {source} is waiting: {takes} takes it"


def _earliest(worker: _binding.Worker, origin: Any, context: int) -> Status | None:
    status = _OtherContext(origin, context).iprobe() if isinstance(origin, Connection) else None
    if status is not None:
        return status._replace(source=origin) if not isinstance(status.source, int) else status
    anybody = _binding.Communicator()
    anybody._bind(worker, 0, context)
    return anybody.iprobe()
