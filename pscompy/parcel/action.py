"""Actions: functions that other processes may call by name, and the one that is running."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


class Registered:
    """A function and how it is called from afar."""

    __slots__ = ("function", "inline", "name")

    def __init__(self, function: Callable[..., Any], name: str, inline: bool) -> None:
        self.function = function
        self.name = name
        self.inline = inline


_by_name: dict[str, Registered] = {}
_by_function: dict[Callable[..., Any], Registered] = {}


@overload
def action(function: F, /) -> F: ...


@overload
def action(*, name: str = "", inline: bool = False) -> Callable[[F], F]: ...


def action(
    function: Callable[..., Any] | None = None, /, *, name: str = "", inline: bool = False
) -> Any:
    """Let peers call a function: a decorator, with or without arguments.

    Peers know it by `name`, which is its module and qualified name unless given; each process
    that runs it has to have registered it, as all ranks of a program do that define it. It runs
    in a thread of its session (PSP_PARCEL_THREADS), or with `inline` in whichever thread moves
    messages on: only for what is short and waits for nothing.

    `ValueError`: another function has the name.
    """
    if function is None:
        return lambda given: _register(given, name, inline)
    return _register(function, name, inline)


def _register(function: Callable[..., Any], name: str, inline: bool) -> Callable[..., Any]:
    made = Registered(function, name or name_of(function), inline)
    known = _by_name.setdefault(made.name, made)
    if known is not made and not _redefined(known.function, function):
        raise ValueError(f"there is an action {made.name!r} already: give this one another name")
    _by_name[made.name] = _by_function[function] = made
    return function


def name_of(function: Callable[..., Any]) -> str:
    """What peers know a function by unless it says otherwise."""
    return f"{function.__module__}:{function.__qualname__}"


def _redefined(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """A module that is loaded again defines its functions again."""
    return name_of(old) == name_of(new)


def find(name: str) -> Registered | None:
    """The action of that name in this process."""
    return _by_name.get(name)


def registered(function: Callable[..., Any]) -> Registered | None:
    """What this function is registered as."""
    try:
        return _by_function.get(function)
    except TypeError:  # not hashable, so nobody has registered it
        return None


# ---- the one that runs ----

_running = threading.local()


class Running:
    """An action that runs here. `source` asked for it: a rank in a World, else a Connection."""

    def __init__(self, name: str, source: Any) -> None:
        self.name = name
        self.source = source
        self._cancelled = threading.Event()

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants its result any more: it should end soon."""
        return self._cancelled.is_set()

    def __repr__(self) -> str:
        return f"<action {self.name}{', cancelled' if self.cancelled else ''}>"


def current_action() -> Running | None:
    """The action that the calling thread runs, or None."""
    return getattr(_running, "action", None)


def run_as(running: Running, function: Callable[[], Any]) -> Any:
    """Call function() as this action; one that is inline may come in between of another."""
    outer = current_action()
    _running.action = running
    try:
        return function()
    finally:
        _running.action = outer
