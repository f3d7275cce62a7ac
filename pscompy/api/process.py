"""The open sessions of this process: closed when it exits, abandoned in its forked children."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pscompy.config import logs
from pscompy.errors import PscomError

if TYPE_CHECKING:
    from typing import Protocol

    class Closable(Protocol):
        def close(self) -> None: ...
        def _abandon(self) -> None: ...
        def _after_fork(self) -> None: ...


# The open sessions, in the order in which they were opened, by id().
_open: dict[int, weakref.ref[Any]] = {}
_dropped: dict[int, Any] = {}  # those that nobody else refers to, and that are being closed
exiting = False  # whether the interpreter ends, so that no session needs a warning


def add(session: Closable) -> None:
    """Close this session at exit if it is still open."""
    _open[id(session)] = weakref.ref(session)


def remove(session: Closable) -> None:
    """Forget a session that was closed. Idempotent."""
    _open.pop(id(session), None)
    _dropped.pop(id(session), None)


def sessions() -> list[Any]:
    """Return the open sessions."""
    found = ((_dropped.get(key) or reference()) for key, reference in list(_open.items()))
    return [session for session in found if session is not None]


def close_dropped(session: Closable) -> None:
    """Close a session, which the program has dropped, in the background, without waiting for
    peers."""
    _dropped[id(session)] = session
    with contextlib.suppress(RuntimeError):  # no thread can be started: the process closes it later
        in_background(session._abandon)


def in_background(function: Callable[[], object]) -> None:
    """Call a function on a thread of its own, for a caller that must not wait."""
    threading.Thread(target=function, name="pscompy closing", daemon=True).start()


def _close_all() -> None:
    """Close all open sessions, the latest first, because a session may use earlier ones."""
    global exiting
    exiting = True
    for session in reversed(sessions()):
        try:
            session._abandon() if id(session) in _dropped else session.close()
        except PscomError:
            logs.logger.exception("%r did not close", session)


def _after_fork_in_child() -> None:
    for session in sessions():
        session._after_fork()
    _open.clear()
    _dropped.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork_in_child)
