"""The unpickler for untrusted senders: it knows a list of opcodes and a list of names.

The unpickler of the standard library calls and changes whatever a pickle names, and trusts the
lengths in it. This reader knows only the opcodes that protocol 5 writes for data. Each opcode does
only what data needs: it fills lists, dicts and sets, and nothing else. A length is compared with
the bytes that have arrived before memory is allocated for it. Only two things are called: the
constructors of `plain.py`, which check their arguments, and functions and classes that the program
has allowed by name. BUILD completes objects that a constructor of `plain.py` has begun and
instances of classes that the program has allowed, never a class or a function.

The reader is written in Python and takes several times as long as pickle does. Long buffers do not
pass through it: they travel beside the pickle.
"""

from __future__ import annotations

import collections
import pickle
import struct
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from pscompy.parcel import plain

if TYPE_CHECKING:
    from typing_extensions import Buffer

_DOUBLE = struct.Struct(">d")
_LISTS = (list, collections.deque)
_DICTS = (dict, collections.OrderedDict, collections.Counter)


class Reader:
    """Reads one pickle from `data`.

    `chunks` are the buffers that the pickle has left out, in order. `allowed` holds the names
    `module:name` that the program may restore besides plain data.
    """

    def __init__(self, data: Buffer, chunks: Sequence[Buffer], allowed: frozenset[str]) -> None:
        self._data = bytes(data)
        self._at = 0
        self._chunks = iter(chunks)
        self._allowed = allowed
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # stacks that a MARK has put aside
        self._memo: list[Any] = []
        # Makers, which construct plain data, by id() of the class or function that the pickle named
        self._makers: dict[int, plain.Maker] = {}
        self._own: dict[int, Any] = {}  # objects of `allowed` that the pickle named, by id()
        # objects that a Maker has begun and the pickle's opcode BUILD may give their state, by id()
        self._begun: dict[int, tuple[Any, plain.Maker, int]] = {}
        self._budget = plain.Budget(
            len(self._data) + sum(memoryview(chunk).nbytes for chunk in chunks)
        )
        self._keys = plain.Keys(self._budget.left)

    def load(self) -> Any:
        """Return the object. Raises `UnpicklingError`, or the exception of a constructor."""
        data, end = self._data, len(self._data)
        while self._at < end:
            code = data[self._at]
            self._at += 1
            if code == _STOP:
                return self._complete()
            _OPCODES[code](self)
        raise UnpicklingError("the pickle has no end")

    def _complete(self) -> Any:
        for _, maker, _ in self._begun.values():
            if maker.needs_state:
                raise UnpicklingError(f"an object of {maker.name} lacks its state")
        return self.pop()

    # ---- bytes and buffers that have arrived ----

    def take(self, count: int) -> bytes:
        at = self._at
        self._at = at + count
        if self._at > len(self._data):
            raise UnpicklingError(f"{count} bytes, of which {len(self._data) - at} have arrived")
        return self._data[at : self._at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def chunk(self) -> None:
        for chunk in self._chunks:
            self._stack.append(memoryview(chunk))
            return
        raise UnpicklingError("more buffers than have arrived")

    # ---- the stack and the memo ----

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def pop(self) -> Any:
        if not self._stack:
            raise UnpicklingError("nothing is on the stack")
        return self._stack.pop()

    def top(self) -> Any:
        if not self._stack:
            raise UnpicklingError("nothing is on the stack")
        return self._stack[-1]

    def mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def pop_to_mark(self) -> list[Any]:
        if not self._below:
            raise UnpicklingError("no mark is on the stack")
        items, self._stack = self._stack, self._below.pop()
        return items

    def memoize(self) -> None:
        self._memo.append(self.top())

    def get(self, index: int) -> None:
        if index >= len(self._memo):
            raise UnpicklingError(f"no object was memoized as number {index}")
        self._stack.append(self._memo[index])

    # ---- containers ----

    def nest(self, made: Any) -> None:
        """Push a tuple or a frozenset."""
        self._stack.append(self._keys.note(made))

    def extend(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) not in _LISTS and not self._is_own(target):
            raise UnpicklingError(f"items of a {_named(target)}")
        if hasattr(target, "extend"):
            target.extend(items)
        else:
            for item in items:
                target.append(item)

    def update(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) not in _DICTS and not self._is_own(target):
            raise UnpicklingError(f"items of a {_named(target)}")
        if len(items) % 2:
            raise UnpicklingError("a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            self._keys.hashed(key)
            target[key] = value

    def add(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is not set:
            raise UnpicklingError(f"elements of a {_named(target)}")
        target.update(self.hashed(items))

    def hashed(self, items: list[Any]) -> list[Any]:
        for item in items:
            self._keys.hashed(item)
        return items

    # ---- names ----

    def name(self, module: Any, name: Any) -> None:
        """Push the object that a name stands for, or its Maker (plain.py) if the Maker `hides` the
        object."""
        if type(module) is not str or type(name) is not str:
            raise UnpicklingError("a name is no text")
        full = f"{module}:{name}"
        maker = _maker(full)
        if maker is not None:
            value = maker if maker.hides else plain.find(module, name)
            self._makers[id(value)] = maker
        elif full in self._allowed:
            value = plain.find(module, name)
            self._own[id(value)] = value
        else:
            raise UnpicklingError(
                f"{full} is not in the list of PSP_PARCEL_ALLOW (PSP_PARCEL_UNPICKLE is restricted)"
            )
        self._stack.append(value)

    def _is_own(self, obj: Any) -> bool:
        """Return whether `obj` is an instance of a class that the program has allowed."""
        return id(type(obj)) in self._own and not isinstance(obj, type)

    # ---- objects ----

    def call(self, is_class: bool, kwargs: Any = None) -> None:
        """REDUCE, NEWOBJ and NEWOBJ_EX: call the object below the arguments on the stack."""
        args, target = self.pop(), self.pop()
        if type(args) is not tuple or not (kwargs is None or type(kwargs) is dict):
            raise UnpicklingError("arguments that are no tuple")
        maker = self._makers.get(id(target))
        if maker is not None and not kwargs:
            made = maker.make(self._budget, *args)
            if maker.fill:
                self._begun[id(made)] = made, maker, len(self._memo)
        elif id(target) in self._own:
            made = _made(target, is_class, args, kwargs or {})
        else:
            raise UnpicklingError(f"{_named(target)} is not called")
        self._stack.append(made)

    def build(self) -> None:
        state, target = self.pop(), self.top()
        begun, maker, kept = self._begun.pop(id(target), (None, None, 0))
        if maker is not None and maker.fill:
            made = maker.fill(self._budget, begun, state)
            self._stack[-1] = made
            if kept < len(self._memo) and self._memo[kept] is begun:
                self._memo[kept] = made
        elif self._is_own(target):
            _set_state(target, state)
        else:
            raise UnpicklingError(f"state for a {_named(target)}")


@lru_cache(256)
def _maker(name: str) -> plain.Maker | None:
    """Return the maker for the name `module:name`, or None if the name is not plain data."""
    known = plain.MAKERS.get(name)
    if known is None and name.startswith(("numpy", "pscompy.parcel.array_codec:")):
        from pscompy.parcel import plain_arrays

        known = plain_arrays.MAKERS.get(name)
    return known


def _named(obj: Any) -> str:
    return obj.name if type(obj) is plain.Maker else getattr(obj, "__name__", type(obj).__name__)


def _made(target: Any, is_class: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not is_class:
        return target(*args)
    if not isinstance(target, type):
        raise UnpicklingError(f"{_named(target)} is no class")
    return target.__new__(target, *args, **kwargs)


def _set_state(target: Any, state: Any) -> None:
    """Set the state of an object whose class the program has allowed, as pickle does."""
    set_state = getattr(target, "__setstate__", None)
    if set_state is not None:
        set_state(state)
        return
    slots: Any = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    for values in (state, slots):
        if values and (type(values) is not dict or not all(map(_is_attribute, values))):
            raise UnpicklingError(f"a state that does not fit a {_named(target)}")
    if state:
        target.__dict__.update({sys.intern(name): value for name, value in state.items()})
    for name, value in (slots or {}).items():
        setattr(target, name, value)


def _is_attribute(name: Any) -> bool:
    return type(name) is str and not (name.startswith("__") and name.endswith("__"))


# ---- opcodes ------------------------------------------------------------------


class _Opcodes(dict[int, "Callable[[Reader], object]"]):
    def __missing__(self, code: int) -> Callable[[Reader], object]:
        raise UnpicklingError(
            f"opcode {code:#04x} is not one of plain data (PSP_PARCEL_UNPICKLE is restricted)"
        )


def _proto(reader: Reader) -> None:
    if not 2 <= reader.number(1) <= pickle.HIGHEST_PROTOCOL:
        raise UnpicklingError("a pickle of another protocol")


def _stack_global(reader: Reader) -> None:
    name, module = reader.pop(), reader.pop()
    reader.name(module, name)


def _newobj_ex(reader: Reader) -> None:
    kwargs = reader.pop()
    reader.call(True, kwargs)


def _long(width: int) -> Callable[[Reader], object]:
    def read(reader: Reader) -> None:
        data = reader.take(reader.number(width))
        reader.push(int.from_bytes(data, "little", signed=True))

    return read


def _text(width: int) -> Callable[[Reader], object]:
    def read(reader: Reader) -> None:
        reader.push(str(reader.take(reader.number(width)), "utf-8", "surrogatepass"))

    return read


def _bytes(width: int, kind: type = bytes) -> Callable[[Reader], object]:
    return lambda reader: reader.push(kind(reader.take(reader.number(width))))


def _unsigned(width: int) -> Callable[[Reader], object]:
    return lambda reader: reader.push(reader.number(width))


def _constant(value: object) -> Callable[[Reader], object]:
    return lambda reader: reader.push(value)


def _tuple(count: int) -> Callable[[Reader], object]:
    return lambda reader: reader.nest(tuple([reader.pop() for _ in range(count)][::-1]))


_STOP = pickle.STOP[0]
_OPCODES = _Opcodes(
    (code[0], handler)
    for code, handler in (
        (pickle.PROTO, _proto),
        (pickle.FRAME, lambda reader: reader.take(8)),
        (pickle.NONE, _constant(None)),
        (pickle.NEWTRUE, _constant(True)),
        (pickle.NEWFALSE, _constant(False)),
        (pickle.BININT1, _unsigned(1)),
        (pickle.BININT2, _unsigned(2)),
        (pickle.BININT, lambda r: r.push(int.from_bytes(r.take(4), "little", signed=True))),
        (pickle.LONG1, _long(1)),
        (pickle.LONG4, _long(4)),
        (pickle.BINFLOAT, lambda reader: reader.push(*_DOUBLE.unpack(reader.take(8)))),
        (pickle.SHORT_BINUNICODE, _text(1)),
        (pickle.BINUNICODE, _text(4)),
        (pickle.BINUNICODE8, _text(8)),
        (pickle.SHORT_BINBYTES, _bytes(1)),
        (pickle.BINBYTES, _bytes(4)),
        (pickle.BINBYTES8, _bytes(8)),
        (pickle.BYTEARRAY8, _bytes(8, bytearray)),
        (pickle.NEXT_BUFFER, Reader.chunk),
        (pickle.READONLY_BUFFER, lambda reader: reader.push(plain.readonly(reader.pop()))),
        (pickle.EMPTY_TUPLE, _constant(())),
        (pickle.EMPTY_LIST, lambda reader: reader.push([])),
        (pickle.EMPTY_DICT, lambda reader: reader.push({})),
        (pickle.EMPTY_SET, lambda reader: reader.push(set())),
        (pickle.TUPLE, lambda reader: reader.nest(tuple(reader.pop_to_mark()))),
        (pickle.TUPLE1, _tuple(1)),
        (pickle.TUPLE2, _tuple(2)),
        (pickle.TUPLE3, _tuple(3)),
        (pickle.FROZENSET, lambda r: r.nest(frozenset(r.hashed(r.pop_to_mark())))),
        (pickle.APPEND, lambda reader: reader.extend([reader.pop()])),
        (pickle.APPENDS, lambda reader: reader.extend(reader.pop_to_mark())),
        (pickle.SETITEM, lambda reader: reader.update([reader.pop(), reader.pop()][::-1])),
        (pickle.SETITEMS, lambda reader: reader.update(reader.pop_to_mark())),
        (pickle.ADDITEMS, lambda reader: reader.add(reader.pop_to_mark())),
        (pickle.MARK, Reader.mark),
        (pickle.POP, Reader.pop),
        (pickle.POP_MARK, Reader.pop_to_mark),
        (pickle.MEMOIZE, Reader.memoize),
        (pickle.BINGET, lambda reader: reader.get(reader.number(1))),
        (pickle.LONG_BINGET, lambda reader: reader.get(reader.number(4))),
        (pickle.STACK_GLOBAL, _stack_global),
        (pickle.REDUCE, lambda reader: reader.call(False)),
        (pickle.NEWOBJ, lambda reader: reader.call(True)),
        (pickle.NEWOBJ_EX, _newobj_ex),
        (pickle.BUILD, Reader.build),
    )
)
