"""Sessions that the program has dropped without closing them.

A Session must be found by the garbage collector, so whatever lives on refers to it weakly: the
control thread, the thread that drives its worker for actions, and the table of open sessions.
Objects that the program holds, such as connections, requests and memory of its pool, keep it alive.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple


class Kept(dict[int, Any]):
    """A dictionary of a session, to which its worker refers weakly."""

    __slots__ = ("__weakref__",)


class Place(NamedTuple):
    """A line of the program."""

    file: str
    line: int


def place() -> Place:
    """Return the line of the program that has called pscompy."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _ours(frame.f_globals.get("__name__") or ""):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


def _ours(module: str) -> bool:
    return module.partition(".")[0] in ("pscompy", "pscompy_gateway")


def warn(kind: str, name: str, opened: Place) -> None:
    """Warn of a session that was opened at this line of the program."""
    warnings.warn_explicit(
        f"the {kind} {name}, opened at {opened.file}:{opened.line}, was dropped without being"
        " closed: call close(), or use it in a `with` block",
        ResourceWarning,
        opened.file,
        opened.line,
    )


def while_alive(
    method: Callable[..., Any], otherwise: Callable[..., Any] = lambda *_: None
) -> Callable[..., Any]:
    """Return a function that calls a method as long as its object exists, and `otherwise` then.
    A function that is no method is returned as it is."""
    if not hasattr(method, "__self__"):
        return method
    reference = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        return (reference() or otherwise)(*args)

    return call
