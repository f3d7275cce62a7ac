"""Functions of a test that run in another process, which gets their code and does not import the
test's module.

`dumps` pickles a function of a test, also a lambda or a function inside a function, with what it
uses of its module and of the functions around it, by value: the other process changes copies only.
`pickle.loads` makes the function again. Functions of pscompy and the standard library travel by
name.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import io
import marshal
import pickle
import sys
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

_BY_NAME = {"pscompy", "numpy", __name__, *sys.stdlib_module_names}


class _Pickler(pickle.Pickler):
    def reducer_override(self, it: Any) -> Any:
        if isinstance(it, ModuleType):
            return _Module if it.__name__.startswith("_pytest") else _module, (it.__name__,)
        if not isinstance(it, FunctionType):
            return NotImplemented
        if not _BY_NAME.isdisjoint((it.__module__, it.__module__.partition(".")[0])):
            return NotImplemented
        used = {name: it.__globals__[name] for name in _globals(it.__code__, it.__globals__)}
        cells = [cell.cell_contents for cell in it.__closure__ or ()]
        state = used, it.__defaults__, it.__kwdefaults__, cells
        return _empty, (marshal.dumps(it.__code__),), state, None, None, _fill


def dumps(value: object) -> bytes:
    written = io.BytesIO()
    _Pickler(written).dump(value)
    return written.getvalue()


class _Module:
    """A module of pytest, which assertions use when they fail; imported only then."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(_module(self._name), name)


def _module(name: str) -> ModuleType:
    return importlib.import_module(name)


def _globals(code: CodeType, known: dict[str, Any]) -> Iterator[str]:
    """The names in `known` that the code loads, also in functions inside it."""
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL" and step.argval in known:
            yield step.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _globals(inner, known)


def _empty(code: bytes) -> FunctionType:
    loaded: CodeType = marshal.loads(code)
    closure = tuple(CellType() for _ in loaded.co_freevars)
    return FunctionType(loaded, {"__builtins__": builtins}, closure=closure)


def _fill(function: FunctionType, state: tuple[Any, ...]) -> None:
    used, function.__defaults__, function.__kwdefaults__, cells = state
    function.__globals__.update(used)
    for cell, value in zip(function.__closure__ or (), cells, strict=True):
        cell.cell_contents = value
