"""Validates what a plug-in declares; each flaw is named in words."""

from __future__ import annotations

from typing import TypeGuard

from pscompy.config.config import Var
from pscompy.config.parsers import Parser
from pscompy.config.variables import VARIABLES
from pscompy.transport.declaration import Transport
from pscompy.transport.python.base import PythonTransport

NAME_MAX = 15
METHODS = ("open", "connect", "send", "disconnect", "close")  # those that a PythonTransport needs
_CORE = {var.name for var in VARIABLES}


def flaw(declared: object, name: str) -> str | None:
    """Return what is wrong with the declaration of a plug-in that is registered as `name`, or
    None."""
    if not isinstance(declared, Transport):
        return f"pscompy_transport returned {type(declared).__name__} instead of a Transport"
    if declared.name != name:
        return f"it is installed as {name!r} and declares the transport {declared.name!r}"
    return (
        flaw_of_name(name) or _flaw_of_transport(declared) or _flaw_of_variables(declared.variables)
    )


def flaw_of_name(name: str) -> str | None:
    """Return why a transport cannot have this name, or None."""
    fits = name.isascii() and name.isalnum() and name.islower() and name[0].isalpha()
    if not fits or len(name) > NAME_MAX:
        return (
            f"the name {name!r} is not 1 to 15 lower-case letters and digits (it is that of the"
            " entry point, or of the file or folder in PSP_PLUGINDIR)"
        )
    if name.upper() in _CORE:
        return f"PSP_{name.upper()} is another variable"
    return None


def _flaw_of_transport(transport: Transport) -> str | None:
    if not _is_count(transport.priority):
        return f"its priority is {transport.priority!r}; it must be a whole number, at least 0"
    if transport.python is None and not callable(transport.ops):
        return "its `ops` is no function (it must return the address of a psc_transport_ops_t)"
    if transport.python is not None and (problem := _flaw_of_class(transport.python)):
        return problem
    if not callable(transport.unavailable):
        return "its `unavailable` is no function (it must return a reason or None)"
    return None


def _flaw_of_variables(variables: object) -> str | None:
    if not isinstance(variables, tuple):
        return f"its variables are a {type(variables).__name__} instead of a tuple of Var"
    seen: set[str] = set()
    for var in variables:
        if not isinstance(var, Var):
            return f"its variables hold {var!r}, which is not a Var"
        if problem := _flaw_of_variable(var):
            return f"its variable {var.name!r} {problem}"
        if var.name in seen:
            return f"its variable {var.name!r} is declared twice"
        seen.add(var.name)
    return None


def _flaw_of_variable(var: Var) -> str | None:
    name = var.name
    if not (name.isascii() and name.isidentifier() and name.isupper() and name[0] != "_"):
        return "is not named in capitals, digits and underscores"
    if not isinstance(var.parser, Parser):
        return "has no Parser of pscompy.plugin"
    if not var.doc.strip():
        return "has no documentation"
    try:
        var.parser(var.default)
    except ValueError:
        return f"has the default {var.default!r}; it must be {var.parser.allowed}"
    return None


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _flaw_of_class(made: object) -> str | None:
    if not (isinstance(made, type) and issubclass(made, PythonTransport)):
        return "its `python` is no subclass of pscompy.plugin.PythonTransport"
    missing = [f"{it}()" for it in METHODS if getattr(made, it) is getattr(PythonTransport, it)]
    if missing:
        return f"the class {made.__name__} does not implement {', '.join(missing)}"
    return None
