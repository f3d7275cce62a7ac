"""Dump: the operations and messages of a session that are in flight, in words, for people who look
for the cause of a hang.

If PSP_SIGQUIT is set, the signal SIGQUIT writes the dumps of all sessions of the process to stderr.
A thread of its own writes them, woken by a pipe that the signal's handler in C writes to, so that
dumps are written even while all other threads are blocked in C.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pscompy.api import process
from pscompy.api.awaited import COLLECTIVES
from pscompy.api.request import ANY_TAG
from pscompy.control.conn import ConnState
from pscompy.control.worker import ITEMS_MAX, Item
from pscompy.core import lib
from pscompy.errors import describe

if TYPE_CHECKING:
    from types import FrameType

    from pscompy.api.c import _binding
    from pscompy.api.siblings import Siblings
    from pscompy.control.manager import Control
    from pscompy.control.worker import Worker

LINES_MAX = 100  # a dump shows at most this many requests, and this many messages
# maximum number of lines of the program that are named as the possible source of a wait
SOURCE_LINES_MAX = 3
_STACK_MAX = 8  # number of innermost calls of each thread that a dump shows
_OURS = str(Path(__file__).parents[1]) + os.sep
_VERBS = {
    lib.PSC_ITEM_SEND: "send to",
    lib.PSC_ITEM_RECV: "receive from",
    lib.PSC_ITEM_PROBE: "probe of",
    lib.PSC_ITEM_LOAN: "view of a message of",
    lib.PSC_ITEM_MESSAGE: "message from",
}
_SERVICES = {
    lib.PSC_CONTEXT_OBJECTS: "objects",
    lib.PSC_CONTEXT_CHUNKS: "buffers of objects",
    lib.PSC_CONTEXT_ACTIONS: "actions",
}


class Dumped(Protocol):
    """The attributes of a Session that a dump reads."""

    _binding: _binding.Worker
    _control: Control
    _endpoints: dict[int, str]
    _core: Worker
    _siblings: Siblings[Any]
    _users: str


class Operation(NamedTuple):
    """A request or an unmatched message of a dump. `ranks`: the ranks that a request waits for,
    empty if it may end without any particular one."""

    id: int
    text: str
    awaited: bool
    is_message: bool
    ranks: tuple[int, ...]


def dump(session: Dumped) -> str:
    """Return the text of `Session.dump`: the dumps of a session and of the sessions of its
    endpoints."""
    return "\n".join(map(_dump_one, (session, *session._siblings.everyone())))


def _dump_one(session: Dumped) -> str:
    """Return the dump of one session, without the sessions of its endpoints."""
    found = operations(session)
    requests = [it.text + ("  <- waited for" * it.awaited) for it in found if not it.is_message]
    messages = [it.text for it in found if it.is_message]
    return "\n".join(
        [
            f"{session!r} pid {os.getpid()}",
            *_section("connections", list(_connections(session))),
            *_section("requests in flight", requests),
            *_section("messages without a receive", messages),
        ]
    )


def operations(session: Dumped) -> list[Operation]:
    """Return the requests of a session that are not done, then its messages without a receive."""
    items = session._core.items(set(session._binding.awaited))
    labels = {it.id: it.label for it in session._control.records()}
    awaited_ranks = _awaited_ranks(items)
    return [_operation(it, _ranks(it, awaited_ranks), labels, session) for it in items]


def _awaited_ranks(items: Iterable[Item]) -> dict[tuple[int, int], set[int]]:
    """Return the ranks whose messages collective operations wait for: (context, tag) -> ranks."""
    found: dict[tuple[int, int], set[int]] = {}
    for item in items:
        if _is_collective(item):
            found.setdefault((item.context, item.tag), set()).add(item.rank)
    return found


def _ranks(item: Item, awaited: dict[tuple[int, int], set[int]]) -> tuple[int, ...]:
    """Return the ranks that a request waits for."""
    if item.kind == lib.PSC_ITEM_COLLECTIVE:
        return tuple(sorted(awaited.get((item.context, item.tag), ())))
    if item.kind == lib.PSC_ITEM_EVENT:
        return tuple(sorted(set().union(*awaited.values())))
    return (item.rank,) if item.rank >= 0 else ()


def _number(tag: int) -> str:
    """Return the number of a collective, whose messages have this tag."""
    persistent = tag & 1 << 30
    return f"persistent number {tag ^ persistent}" if persistent else f"number {tag}"


def _operation(
    item: Item, ranks: tuple[int, ...], labels: dict[int, str], session: Dumped
) -> Operation:
    text = _text(item, ranks, labels, _endpoint(session, item))
    return Operation(item.id, text, item.awaited, item.kind == lib.PSC_ITEM_MESSAGE, ranks)


def _collective(item: Item, ranks: tuple[int, ...], endpoint: str) -> str:
    """Return a collective operation in words, with the ranks whose messages it waits for."""
    waits = f"waits for rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else ""
    name = f"{COLLECTIVES[item.nbytes]}, {_number(item.tag)}"
    return ", ".join(filter(None, (name, _context(item.context), endpoint, waits)))


def _text(item: Item, ranks: tuple[int, ...], labels: dict[int, str], endpoint: str) -> str:
    if item.kind == lib.PSC_ITEM_EVENT:
        words = ["a connection that comes up or closes", endpoint]
        return ", ".join(filter(None, words))
    if item.kind == lib.PSC_ITEM_COLLECTIVE:
        return _collective(item, ranks, endpoint)
    if item.rank >= 0:
        peer = f"rank {item.rank}"
    else:
        peer = labels.get(item.conn, "a peer") if item.conn else "any source"
    words = [f"{_VERBS[item.kind]} {peer}"]
    words.append("any tag" if item.tag == ANY_TAG else f"tag {item.tag}")
    if item.kind in (lib.PSC_ITEM_SEND, lib.PSC_ITEM_MESSAGE):
        words.append(f"{item.nbytes} bytes")
    words += [it for it in (_context(item.context), endpoint, item.state) if it]
    return ", ".join(words)


def _context(number: int) -> str:
    """Return the traffic that a context number stands for, "" for messages of a session or a
    World."""
    if number == lib.PSC_CONTEXT_AM:
        return "active message"
    if number == lib.PSC_CONTEXT_RMA:
        return "put or get"
    base = number & lib.PSC_CONTEXT_NUMBER
    service = _SERVICES.get(number - base, "")
    own_numbers = base - lib.PSC_CONTEXT_USER
    if own_numbers < 0:
        return service
    communicator = f"communicator {own_numbers // 2}" if own_numbers > 1 else ""
    kind = service or ("collective operation" if own_numbers % 2 else "")
    return ", ".join(filter(None, (kind, communicator)))


def _endpoint(session: Dumped, item: Item) -> str:
    """Return the name of the endpoint that an item belongs to, or of the endpoints that share its
    worker if its own is not known; "" if it belongs to no endpoint."""
    base = item.context & lib.PSC_CONTEXT_NUMBER
    own_number = base - lib.PSC_CONTEXT_USER
    users = session._users.removeprefix(" of ")
    return session._endpoints.get(base - own_number % 2, users) if own_number >= 0 else users


def _is_collective(item: Item) -> bool:
    """Return whether `item` is a message of a collective operation, sent or received."""
    number: int = item.context - lib.PSC_CONTEXT_USER
    in_a_world = 0 <= number < lib.PSC_CONTEXT_END - lib.PSC_CONTEXT_USER
    messages = (lib.PSC_ITEM_RECV, lib.PSC_ITEM_SEND)
    return bool(item.kind in messages and in_a_world and number % 2)


def _connections(session: Dumped) -> Iterator[str]:
    for record in session._control.records():
        state = record.conn.state
        lanes = f" over {record.report.choice}, lanes: {record.report.lanes}" * bool(
            record.report.rails
        )
        counted = record.conn.counters()
        traffic = ", ".join(
            f"{counted[name]} {name.replace('_', ' ')}"
            for name in ("sent_messages", "sent_bytes", "received_messages", "received_bytes")
            if state is not ConnState.CONNECTING
        )
        error = f"; {record.error}" if record.error else ""
        yield f"{record.label}: {state.name}{lanes}{'; ' * bool(traffic)}{traffic}{error}"


def _section(title: str, lines: list[str]) -> list[str]:
    shown = [f"    {line}" for line in lines[:LINES_MAX]]
    if len(lines) > LINES_MAX:
        more = "or more" if len(lines) >= ITEMS_MAX else "in all"
        shown.append(f"    ... {len(lines)} {more}")
    return [f"  {title}:", *(shown or ["    none"])]


# ---- where the program is ----


def source_line() -> str:
    """Return the line of the program that the main thread executes, "" if it is not known."""
    return _line(sys._current_frames().get(threading.main_thread().ident or 0))


def source_lines() -> str:
    """Return the lines that the program's threads execute, without those that wait for other
    threads; "" if they are too many to tell which one is meant."""
    frames = (frame for _, frame in _frames() if frame.f_globals.get("__name__") != "threading")
    lines = sorted(set(filter(None, map(_line, frames))))
    return " or ".join(lines) if len(lines) <= SOURCE_LINES_MAX else ""


def _line(frame: FrameType | None) -> str:
    for outer, line in traceback.walk_stack(frame):
        name = outer.f_code.co_filename
        if (
            not name.startswith((_OURS, "<frozen"))
            and outer.f_globals.get("__name__") != "threading"
        ):
            return f"{Path(name).name}:{line}"
    return ""


def _threads() -> Iterator[str]:
    """Yield the calls of each thread of the program, the innermost first."""
    for name, frame in _frames():
        yield f"  thread {name}:"
        yield from _calls(frame)


def _frames() -> Iterator[tuple[str, FrameType]]:
    """Yield the names of the program's threads, and their innermost calls."""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is not None and not thread.name.startswith("pscompy"):
            yield thread.name, frame


def _calls(frame: FrameType) -> Iterable[str]:
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_STACK_MAX)
    return (f"    {it.filename}:{it.lineno} in {it.name}" for it in summary)


# ---- SIGQUIT ----

_pipe: tuple[int, int] | None = None


def dump_on_sigquit() -> None:
    """Have SIGQUIT write the dumps of all sessions of this process to stderr. Idempotent."""
    global _pipe
    if _pipe is not None:
        return
    _pipe = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(_pipe[1], False)
    thread = threading.Thread(target=_serve, args=_pipe[:1], name="pscompy dump", daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    faulthandler.register(signal.SIGQUIT, file=_pipe[1], all_threads=False)
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    """Restore the default effect of SIGQUIT. Called in the child after a fork, where the thread
    does not exist."""
    global _pipe
    if _pipe is not None:
        faulthandler.unregister(signal.SIGQUIT)
        for fd in _pipe:
            os.close(fd)
        _pipe = None


def _serve(reader: int) -> None:
    """Dump whenever the signal has arrived. The stack that faulthandler writes into the pipe is not
    used, because it names no threads; only its first line, which arrives in one piece, shows that
    the signal has arrived."""
    with contextlib.suppress(OSError):
        while data := os.read(reader, 1 << 16):
            if b"Stack (" in data:
                _write_dumps()


def _write_dumps() -> None:
    """Write the dumps of all sessions, and the calls of all threads. If stderr takes nothing now,
    the next signal may find it open."""
    text = "\n".join([*map(_dump_or_why, process.sessions()), *_threads()])
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="replace"))


def _dump_or_why(session: Dumped) -> str:
    """The dump of a session, or why there is none: the session may be closing."""
    try:
        return _dump_one(session)
    except Exception as error:
        return f"{session!r} has no dump: {describe(error)}"
