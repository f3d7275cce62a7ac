"""The open sessions of this process: closed when it exits, abandoned in its forked children."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pscompy.config import logs
from pscompy.errors import PscomError

if TYPE_CHECKING:
    from typing import Protocol

    class Closable(Protocol):
        def close(self) -> None: ...
        def _after_fork(self) -> None: ...


# The open sessions, in the order in which they were opened. A session stays open even if the
# program drops its last reference.
_open: dict[Closable, None] = {}


def add(session: Closable) -> None:
    """Close this session at exit if it is still open."""
    _open[session] = None


def remove(session: Closable) -> None:
    """Forget a session that was closed. Idempotent."""
    _open.pop(session, None)


def sessions() -> list[Any]:
    """Return the open sessions."""
    return list(_open)


def in_background(function: Callable[[], object]) -> None:
    """Call a function on a thread of its own, for a caller that must not wait."""
    threading.Thread(target=function, name="pscompy closing", daemon=True).start()


def _close_all() -> None:
    """Close all open sessions, the latest first, because a session may use earlier ones."""
    for session in reversed(list(_open)):
        try:
            session.close()
        except PscomError:
            logs.logger.exception("%r did not close", session)


def _after_fork_in_child() -> None:
    for session in list(_open):
        session._after_fork()
    _open.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork_in_child)
