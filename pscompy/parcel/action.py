"""Actions: functions that other processes may call by name, and the action that is running."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


class Registered:
    """A function that peers may call, and how to call it."""

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

    Peers know the function by `name`; the default is its module and qualified name. Each process
    that runs the function must have registered it; all ranks of a program that define it have.
    The function runs in a thread of its session (PSP_PARCEL_THREADS). With `inline` it runs in
    whichever thread makes progress: use that only for functions that are short and never wait.

    Raises `ValueError` if another function has the name.
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
    """Return the default name of a function as an action: `module:qualified name`."""
    return f"{function.__module__}:{function.__qualname__}"


def named(function: Callable[..., object]) -> str:
    """Return the name of a function, or of the type of a callable that has none."""
    try:
        return name_of(function)
    except AttributeError:
        return type(function).__name__


def _redefined(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Return whether `new` is `old` again, defined once more because its module was reloaded."""
    return name_of(old) == name_of(new)


def find(name: str) -> Registered | None:
    """Return the action of that name in this process, or None."""
    return _by_name.get(name)


def nearest(name: str) -> list[str]:
    """Return the names of a few actions of this process that resemble `name`, the best one
    first."""
    import difflib  # imported late: only a wrong name needs it

    function = name.partition(":")[2]
    same = [it for it in _by_name if function and it.partition(":")[2] == function]
    return list(dict.fromkeys([*same, *difflib.get_close_matches(name, _by_name, 3)]))[:3]


def registered(function: Callable[..., Any]) -> Registered | None:
    """Return the action that this function is registered as, or None."""
    try:
        return _by_function.get(function)
    except TypeError:  # an object that is not hashable was not registered
        return None


# ---- the running action ----

_running = threading.local()


class Running:
    """An action that runs in this process. `source` is the caller: a rank in a World, else a
    Connection."""

    def __init__(self, name: str, source: Any) -> None:
        self.name = name
        self.source = source
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether the caller does not want the result any more; the action should end soon."""
        return self._cancelled

    def cancel(self) -> None:
        """Note that the caller does not want the result any more."""
        self._cancelled = True

    def __repr__(self) -> str:
        return f"<action {self.name}{', cancelled' if self.cancelled else ''}>"


def current_action() -> Running | None:
    """Return the action that the calling thread runs, or None."""
    return getattr(_running, "action", None)


def run_as(
    running: Running,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call the function with `running` as the current action, and then restore the previous one,
    because an inline action may run in the middle of another."""
    outer = current_action()
    _running.action = running
    try:
        return function(*args, **kwargs)
    finally:
        _running.action = outer


def note_interrupt(error: BaseException) -> None:
    """Keep a KeyboardInterrupt that has ended an action, for raise_interrupt."""
    if isinstance(error, KeyboardInterrupt):
        _running.interrupted = True


def raise_interrupt() -> None:
    """Raise the KeyboardInterrupt that has ended an action in this thread, if there was one."""
    if getattr(_running, "interrupted", False):
        _running.interrupted = False
        raise KeyboardInterrupt
