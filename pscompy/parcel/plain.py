"""Constructors of plain data from untrusted senders (restricted.py).

Each constructor checks the types and values of its arguments, and that the object it makes is not
longer than the data that has arrived: `Budget` counts the bytes and elements that are copied. No
constructor takes an argument as a pointer, as code or as a length without its data, and none
passes its arguments to a function that does.
"""

from __future__ import annotations

import array
import builtins
import collections
import datetime
import importlib
import math
import re
import struct
from collections.abc import Callable
from functools import reduce
from pickle import UnpicklingError
from typing import Any, NamedTuple

_DEPTH_MAX = 1000  # levels of tuples within tuples; pickle does not write more
_DIGITS_MAX = 4300  # digits of a number given as text; Python's own default limit
_BITS_MAX = 1 << 14  # bits in each part of a fraction
_HASHED_MIN = 1 << 20  # weight of hashing that all keys of any pickle may have together (see Keys)
_BUFFERS = (bytes, bytearray, memoryview)
_NESTED = (tuple, frozenset)
_SCALARS = (int, float, str, bytes, bool, type(None))


class Budget:
    """The number of bytes or elements that constructors may still copy."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise UnpicklingError("it would take more memory than has arrived")


class Keys:
    """Bounds the nesting of tuples and frozensets, and the work of hashing them.

    Python hashes and frees nested tuples by recursion, so their depth is bounded. Hashing visits
    an element once for each reference to it, so a short pickle can describe a key that would take
    years to hash. Therefore the weight of each key, and of all keys together, is bounded too.
    """

    def __init__(self, nbytes: int) -> None:
        self._deep: dict[int, tuple[int, int]] = {}  # depth and weight of nested tuples, by id()
        self._kept: list[Any] = []  # keeps nested tuples alive, so that no id() is used again
        self._left = _HASHED_MIN + 16 * nbytes  # weight of hashing that further keys may have

    def note(self, made: Any) -> Any:
        inner = [self._known(item) for item in made if type(item) in _NESTED]
        if inner:
            depth = 1 + max(depth for depth, _ in inner)
            if depth > _DEPTH_MAX:
                raise UnpicklingError(f"tuples are nested more than {_DEPTH_MAX} times")
            self._deep[id(made)] = depth, _weight(made) + sum(weight for _, weight in inner)
            self._kept.append(made)
            self._bound(self._deep[id(made)][1])
        return made

    def hashed(self, key: Any) -> None:
        if type(key) is tuple:
            self._left -= self._known(key)[1]
        elif type(key) is int:
            self._left -= key.bit_length() >> 6
        self._bound(0)

    def _bound(self, weight: int) -> None:
        if weight > self._left:
            raise UnpicklingError("tuples that take too long to be hashed")

    def _known(self, item: Any) -> tuple[int, int]:
        return self._deep.get(id(item)) or (1, _weight(item))


def _weight(items: Any) -> int:
    """Return the weight of hashing `items`, without the weight of tuples within them."""
    return 1 + len(items) + sum(item.bit_length() >> 6 for item in items if type(item) is int)


class Maker(NamedTuple):
    """The functions that make the objects of one class or function that a pickle names.

    `make(budget, *args)` begins an object and `fill(budget, made, state)` returns it complete; an
    object whose maker `needs_state` is invalid before that. If `hides` is set, the reader puts the
    Maker itself on its stack instead of the Python object of that name.
    """

    name: str
    make: Callable[..., Any]
    fill: Callable[[Budget, Any, Any], Any] | None = None
    needs_state: bool = False
    hides: bool = False


def find(module: str, name: str) -> Any:
    """Import the object `name` of `module`, as pickle does."""
    return reduce(getattr, name.split("."), importlib.import_module(module))


def check(fits: object, what: str) -> None:
    if not fits:
        raise UnpicklingError(f"these are not arguments of {what}")


def buffer(data: Any) -> memoryview:
    """Return a view of bytes that have arrived. Raises `UnpicklingError` if `data` is another
    object: views of any object could keep each other alive in an endless chain."""
    check(type(data) in _BUFFERS, "a buffer")
    return memoryview(data)


def readonly(data: Any) -> memoryview:
    return buffer(data).toreadonly()


# ---- numbers, texts, times ----------------------------------------------------


def _only_named(name: str) -> Callable[..., Any]:
    def refuse(budget: Budget, *args: Any) -> Any:
        raise UnpicklingError(f"{name} is not called")

    return refuse


def _scalar(kind: type) -> Callable[..., Any]:
    def make(budget: Budget, value: Any) -> Any:
        check(type(value) in (bool, int, float, str), kind.__name__)
        check(type(value) is not str or len(value) <= _DIGITS_MAX or kind is str, kind.__name__)
        return kind(value)

    return make


def _copy(kind: type) -> Callable[..., Any]:
    def make(budget: Budget, data: Any = b"") -> Any:
        view = buffer(data)
        budget.spend(view.nbytes)
        return kind(view)

    return make


def _complex(budget: Budget, real: Any, imaginary: Any) -> complex:
    check(type(real) is float and type(imaginary) is float, "complex")
    return complex(real, imaginary)


def _range(budget: Budget, *args: Any) -> range:
    check(len(args) == 3 and all(type(arg) is int for arg in args), "range")
    return range(*args)


def _slice(budget: Budget, *args: Any) -> slice:
    check(len(args) == 3 and all(type(arg) in _SCALARS for arg in args), "slice")
    return slice(*args)


def _object(budget: Budget) -> object:
    return object()


def _decimal(budget: Budget, text: Any) -> Any:
    from decimal import Decimal

    check(type(text) is str, "Decimal")
    budget.spend(len(text))
    return Decimal(text)


def _fraction(budget: Budget, top: Any, bottom: Any = None) -> Any:
    from fractions import Fraction

    if bottom is None:  # Python before 3.12 pickles a fraction as one text
        check(type(top) is str and re.fullmatch(r"-?\d{1,4300}(/\d{1,4300})?", top), "Fraction")
        top, _, bottom = top.partition("/")
        top, bottom = int(top), int(bottom or 1)
    for part in (top, bottom):
        check(type(part) is int and part.bit_length() <= _BITS_MAX, "Fraction")
    return Fraction(top, bottom)


def _uuid(budget: Budget) -> Any:
    from uuid import UUID

    return object.__new__(UUID)


def _fill_uuid(budget: Budget, made: Any, state: Any) -> Any:
    number = state.get("int") if type(state) is dict else None
    check(type(number) is int and number >= 0 and number.bit_length() <= 128, "UUID")
    made.__setstate__({"int": number})
    return made


def _timezone(budget: Budget, offset: Any, *name: Any) -> datetime.timezone:
    check(type(offset) is datetime.timedelta and len(name) <= 1, "timezone")
    check(all(type(text) is str for text in name), "timezone")
    return datetime.timezone(offset, *name)


def _timedelta(budget: Budget, *args: Any) -> datetime.timedelta:
    check(len(args) == 3 and all(type(arg) is int for arg in args), "timedelta")
    return datetime.timedelta(*args)


def _date(budget: Budget, packed: Any) -> datetime.date:
    check(type(packed) is bytes and len(packed) == 4, "date")
    return datetime.date(int.from_bytes(packed[:2], "big"), packed[2], packed[3])


def _time(budget: Budget, packed: Any, zone: Any = None) -> datetime.time:
    check(type(packed) is bytes and len(packed) == 6, "time")
    check(zone is None or isinstance(zone, datetime.tzinfo), "time")
    hour, fold = packed[0] & 0x7F, packed[0] >> 7
    microseconds = int.from_bytes(packed[3:], "big")
    return datetime.time(hour, packed[1], packed[2], microseconds, zone, fold=fold)


def _datetime(budget: Budget, packed: Any, zone: Any = None) -> datetime.datetime:
    check(type(packed) is bytes and len(packed) == 10, "datetime")
    check(zone is None or isinstance(zone, datetime.tzinfo), "datetime")
    month, fold = packed[2] & 0x7F, packed[2] >> 7
    date = datetime.date(int.from_bytes(packed[:2], "big"), month, packed[3])
    time = _time(budget, packed[4:])
    return datetime.datetime.combine(date, time.replace(tzinfo=zone, fold=fold))


# ---- containers ---------------------------------------------------------------


def _deque(budget: Budget, items: Any = (), longest: Any = None) -> collections.deque[Any]:
    check(type(items) is tuple and not items and type(longest) in (int, type(None)), "deque")
    return collections.deque(maxlen=longest)


def _ordered_dict(budget: Budget) -> collections.OrderedDict[Any, Any]:
    return collections.OrderedDict()


def _counter(budget: Budget, counts: Any = None) -> collections.Counter[Any]:
    check(type(counts) in (dict, type(None)), "Counter")
    budget.spend(len(counts or ()))
    return collections.Counter(counts)


# ---- memory -------------------------------------------------------------------


def _memoryview(budget: Budget, data: Any, form: Any, shape: Any) -> memoryview:
    check(type(form) is str and is_shape(shape), "memoryview")
    view = buffer(data)
    if not view.nbytes:
        budget.spend(struct.calcsize(form) * math.prod(shape[1:]))
    return shaped(view, form, shape)


def shaped(view: memoryview, form: str, shape: tuple[int, ...]) -> memoryview:
    """Return a memoryview of bytes as one of this format and shape. Raises `TypeError` or
    `ValueError` if Python can make none."""
    if view.nbytes:
        return view.cast(form, shape)  # type: ignore[call-overload,no-any-return]
    # cast() makes no empty view, so this one is a part of a view of one row
    row = memoryview(bytearray(struct.calcsize(form) * math.prod(shape[1:])))
    empty: memoryview = row.cast(form, (1, *shape[1:]))[:0]  # type: ignore[call-overload]
    return empty.toreadonly() if view.readonly else empty


def is_shape(shape: Any) -> bool:
    return type(shape) is tuple and all(type(length) is int and length >= 0 for length in shape)


def _array(budget: Budget, code: Any, data: Any) -> array.array[Any]:
    check(type(code) is str and code in array.typecodes, "array")
    view = buffer(data)
    budget.spend(view.nbytes)
    made: array.array[Any] = array.array(code)
    made.frombytes(view)
    return made


def _array_elsewhere(budget: Budget, kind: Any, code: Any, form: Any, data: Any) -> Any:
    """Return an array from numbers in another machine's format `form`, as pickle does."""
    check(kind is array.array and type(code) is str and code in array.typecodes, "array")
    check(type(form) is int and 0 <= form <= 21 and type(data) is bytes, "array")
    budget.spend(len(data))
    return array._array_reconstructor(kind, code, form, data)  # type: ignore[attr-defined]


# ---- exceptions ---------------------------------------------------------------

_METHODS = frozenset({"add_note", "with_traceback"})


def _exception(name: str) -> Callable[..., Any]:
    def make(budget: Budget, *args: Any) -> BaseException:
        made: BaseException = getattr(builtins, name)(*args)
        return made

    return make


def _fill_exception(budget: Budget, made: Any, state: Any) -> Any:
    check(type(state) is dict, "an exception")
    for name, value in state.items():
        if name == "args":  # the exception would convert any other object to a tuple
            check(type(value) is tuple, "an exception")
        elif name == "__notes__":
            check(type(value) is list and all(type(note) is str for note in value), "notes")
        else:
            check(type(name) is str and name[:2] != "__" and name not in _METHODS, "an exception")
        setattr(made, name, value)
    return made


# ---- names --------------------------------------------------------------------

_ERRORS = (
    *("ArithmeticError", "AssertionError", "AttributeError", "BufferError", "EOFError"),
    *("Exception", "FileNotFoundError", "IndexError", "KeyError", "LookupError", "MemoryError"),
    *("NotImplementedError", "OSError", "OverflowError", "PermissionError", "RuntimeError"),
    *("StopIteration", "TimeoutError", "TypeError", "UnicodeError", "ValueError"),
    "ZeroDivisionError",
)
_OURS = "pscompy.parcel.pickling"
MAKERS = {
    maker.name: maker
    for maker in (
        *(Maker(f"builtins:{kind.__name__}", _scalar(kind)) for kind in (bool, int, float, str)),
        *(Maker(f"builtins:{kind.__name__}", _copy(kind)) for kind in (bytes, bytearray)),
        *(
            Maker(f"builtins:{name}", _only_named(name))
            for name in ("dict", "frozenset", "list", "set", "tuple")
        ),
        *(Maker(f"builtins:{name}", _exception(name), _fill_exception) for name in _ERRORS),
        Maker("builtins:complex", _complex),
        Maker("builtins:object", _object),
        Maker("builtins:range", _range),
        Maker("builtins:slice", _slice),
        Maker("collections:Counter", _counter),
        Maker("collections:OrderedDict", _ordered_dict),
        Maker("collections:deque", _deque),
        Maker("datetime:date", _date),
        Maker("datetime:datetime", _datetime),
        Maker("datetime:time", _time),
        Maker("datetime:timedelta", _timedelta),
        Maker("datetime:timezone", _timezone),
        Maker("decimal:Decimal", _decimal),
        Maker("fractions:Fraction", _fraction),
        Maker("uuid:UUID", _uuid, _fill_uuid, needs_state=True),
        Maker("array:array", _only_named("array")),
        Maker("array:_array_reconstructor", _array_elsewhere, hides=True),
        Maker(f"{_OURS}:make_array", _array, hides=True),
        Maker(f"{_OURS}:make_memoryview", _memoryview, hides=True),
    )
}
