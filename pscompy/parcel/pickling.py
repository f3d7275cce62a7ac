"""Serialisers: how objects become bytes and chunks. No I/O.

With pickle, any peer that sends an object can run any code in the receiver. `Restricted` reads only
plain data and the names that a list allows (restricted.py).
"""

from __future__ import annotations

import array
import importlib
import io
import pickle
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copyreg import dispatch_table
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, Protocol

from pscompy.api.c import _binding
from pscompy.errors import ConfigError, Unsupported, describe
from pscompy.parcel import array_codec
from pscompy.parcel.plain import shaped
from pscompy.parcel.restricted import Reader

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Serialiser(Protocol):
    """The interface of the object that `PSP_PARCEL_SERIALISER=module:name` names.

    `name` has 1 to 8 ASCII letters; the receiver compares it with the name of its own serialiser.
    `dumps` calls `leave` for each buffer that it could leave out of the bytes it returns, and
    leaves the buffer out unless `leave` returns a true value. `loads` gets the buffers that were
    left out, in order.
    """

    @property
    def name(self) -> str: ...

    def dumps(self, obj: object, leave: Callable[[PickleBuffer], Any], /) -> bytes: ...

    def loads(self, data: Buffer, chunks: Sequence[Buffer], /) -> Any: ...


PROTOCOL = 5
SHORT = 4096  # a buffer of fewer bytes is copied out of the message that has it


# ---- types that pickle would copy, or does not support ------------------------


class _Whole:
    """Wraps a bytes-like object that is the whole message: pickle would copy it into the index."""

    def __init__(self, obj: Any) -> None:
        self._obj = obj

    def __reduce__(self) -> tuple[Any, ...]:
        return _WHOLE[type(self._obj)](self._obj)


def make_memoryview(buffer: Buffer, format: str, shape: tuple[int, ...]) -> memoryview:
    return shaped(memoryview(buffer), format, shape)


def make_array(typecode: str, buffer: Buffer) -> Any:
    made = array.array(typecode)
    made.frombytes(buffer)
    return made


def _take_memoryview(view: memoryview) -> tuple[Any, ...]:
    flat = view
    if not view.c_contiguous:
        flat = memoryview(view.tobytes() if view.readonly else bytearray(view.tobytes()))
    try:
        shaped(PickleBuffer(flat).raw(), view.format, view.shape or ())
    except (TypeError, ValueError, struct.error) as error:
        raise TypeError(
            f"a memoryview of format {view.format!r} and shape {view.shape} cannot be restored:"
            f" send an array, as numpy.asarray(view) ({error})"
        ) from None
    return make_memoryview, (PickleBuffer(flat), view.format, view.shape)


def _take_array(whole: Any) -> tuple[Any, ...]:
    return make_array, (whole.typecode, PickleBuffer(whole))


_MORE: dict[type, Any] = {memoryview: _take_memoryview, array.array: _take_array}
_WHOLE: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    bytes: lambda whole: (bytes, (PickleBuffer(whole),)),
    bytearray: lambda whole: (bytearray, (PickleBuffer(whole),)),
    **_MORE,
}


class _Dispatch:
    """The dispatch table of this module's picklers: the entries of copyreg, and its own, which take
    precedence. Arrays of fewer than `copied` bytes are copied into the pickle."""

    def __init__(self, copied: int) -> None:
        self._reduce_array = _binding.reducer(array_codec.restore, copied)
        self._theirs: dict[Any, Any] = {}
        self._table: dict[Any, Any] = dict(_MORE)

    def table(self) -> dict[Any, Any]:
        if self._theirs != dispatch_table:
            self._theirs = dict(dispatch_table)
            self._table = {**self._theirs, **_MORE}
        numpy = sys.modules.get("numpy")
        if numpy and (array := getattr(numpy, "ndarray", None)) and array not in self._table:
            self._table = {**self._table, array: self._reduce_array}
        return self._table


def whole_pickle(obj: object) -> bytes | None:
    """Return the pickle of an object, made by the pickle module alone. Returns None if the object
    is or has buffers that are better left out, or the pickle module does not support it."""
    if type(obj) in _WHOLE or type(obj).__name__ == "ndarray":
        return None
    left: list[PickleBuffer] = []
    try:
        made = pickle.dumps(obj, PROTOCOL, buffer_callback=left.append)
    except TypeError:
        return None
    return None if left else made


# ---- serialisers --------------------------------------------------------------


class Pickle:
    """The pickle module with protocol 5, which every supported Python reads."""

    name = "pickle"

    def __init__(self, copied: int = 1024) -> None:
        """Arrays within an object are copied if they have fewer than `copied` bytes."""
        self._dispatch = _Dispatch(copied)

    def dumps(self, obj: object, leave: Callable[[PickleBuffer], Any]) -> bytes:
        out = io.BytesIO()
        pickler = pickle.Pickler(out, PROTOCOL, buffer_callback=leave)
        pickler.dispatch_table = self._dispatch.table()
        pickler.dump(_Whole(obj) if type(obj) in _WHOLE else obj)
        return out.getvalue()

    def loads(self, data: Buffer, chunks: Sequence[Buffer]) -> Any:
        return pickle.loads(data, buffers=chunks)


class Cloudpickle(Pickle):
    """Supports functions and classes of __main__ too; the output is an ordinary pickle.

    Raises `Unsupported` if cloudpickle is not installed.
    """

    def __init__(self, copied: int = 1024) -> None:
        super().__init__(copied)
        try:
            self._dumps = importlib.import_module("cloudpickle").dumps
        except ImportError as error:
            raise Unsupported(
                "PSP_PARCEL_SERIALISER=cloudpickle: pip install cloudpickle"
            ) from error

    def dumps(self, obj: object, leave: Callable[[PickleBuffer], Any]) -> bytes:
        if type(obj) in _WHOLE:
            return super().dumps(obj, leave)
        made: bytes = self._dumps(obj, PROTOCOL, buffer_callback=leave)
        return made


class Restricted:
    """Writes as `inner` does; reads only plain data and the objects named in `names`."""

    def __init__(self, inner: Serialiser, names: Iterable[str] = ()) -> None:
        self.inner = inner
        self._allowed = frozenset(names)
        self.name = inner.name

    def dumps(self, obj: object, leave: Callable[[PickleBuffer], Any]) -> bytes:
        return self.inner.dumps(obj, leave)

    def loads(self, data: Buffer, chunks: Sequence[Buffer]) -> Any:
        return Reader(data, chunks, self._allowed).load()


# ---- configuration ------------------------------------------------------------


class Pickling:
    """The serialiser of a session, and the length in bytes from which buffers are not copied."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Find the serialiser that `config` names. Raises `ConfigError` if it cannot be used, and
        `Unsupported` if it is cloudpickle and that is not installed."""
        serialiser = _serialiser(config["PARCEL_SERIALISER"], config["PARCEL_ZERO_COPY"])
        if config["PARCEL_UNPICKLE"] == "restricted":
            serialiser = Restricted(serialiser, config["PARCEL_ALLOW"])
        self.serialiser: Serialiser = serialiser
        self.zero_copy: int = config["PARCEL_ZERO_COPY"]


def _serialiser(name: str, zero_copy: int) -> Serialiser:
    copied = min(zero_copy, SHORT)
    if name == "pickle":
        return Pickle(copied)
    if name == "cloudpickle":
        return Cloudpickle(copied)
    module, _, attribute = name.partition(":")
    try:
        made: Serialiser = getattr(importlib.import_module(module), attribute)
        fits = 0 < len(made.name.encode("ascii")) <= 8
        fits = fits and callable(made.dumps) and callable(made.loads)
    except (ImportError, AttributeError, ValueError) as error:
        raise _no_serialiser(name, describe(error)) from error
    if not fits:
        raise _no_serialiser(name, "its name has not 1 to 8 letters")
    return made


def _no_serialiser(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"PSP_PARCEL_SERIALISER: {name!r} cannot be used: {why}",
        name="PSP_PARCEL_SERIALISER",
        value=name,
        allowed="pickle, cloudpickle, or module:name of a serialiser",
    )
