"""Frozen values: what a dataclass gives, without generating code.

Every process that opens a session pays for the classes that it defines. A frozen dataclass takes
0.5 ms to be made, and `dataclasses` 4 ms to be imported; a `Value` takes 10 µs. It costs more
than a dataclass each time that one is made, so it is for what is made per process or connection.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, ClassVar, NoReturn, TypeVar

    from typing_extensions import dataclass_transform

    V = TypeVar("V", bound="Value")
else:

    def dataclass_transform(**_: object) -> Any:
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class Value:
    """A subclass annotates its fields; what it assigns there are their defaults.

    Equal are values of the same class with equal fields. `class Key(Value, hidden=("secret",))`
    keeps a field out of `repr`.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}
    _hidden: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, hidden: tuple[str, ...] = ()) -> None:
        own = cls.__annotations__.items()
        fields = [name for name, kind in own if not str(kind).startswith("ClassVar")]
        assigned = {name: cls.__dict__[name] for name in fields if name in cls.__dict__}
        cls._fields = tuple(dict.fromkeys((*cls._fields, *fields)))
        cls._defaults = {**cls._defaults, **assigned}
        cls._hidden = (*cls._hidden, *hidden)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """TypeError: a field is missing, given twice, or unknown."""
        if not kwargs and len(args) == len(self._fields):
            self._fill(zip(self._fields, args, strict=True))
            return
        given = dict(zip(self._fields, args, strict=False), **kwargs)
        values = {**self._defaults, **given}
        if len(given) < len(args) + len(kwargs) or values.keys() != set(self._fields):
            wanted, got = ", ".join(self._fields), ", ".join(given) or "none"
            raise TypeError(f"{type(self).__name__} has the fields {wanted}; given: {got}")
        self._fill(values.items())

    def _fill(self, values: Iterable[tuple[str, Any]]) -> None:
        """One by one: whoever asks for `__dict__` gets a dictionary, 100 bytes that stay."""
        for name, value in values:
            object.__setattr__(self, name, value)

    def but(self: V, **changes: Any) -> V:
        """The same value with some fields changed."""
        return type(self)(**{**self.as_dict(), **changes})

    def as_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return {name: getattr(self, name) for name in self._fields}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        return hash((type(self), *self.as_dict().values()))

    def __repr__(self) -> str:
        shown = (f"{k}={v!r}" for k, v in self.as_dict().items() if k not in self._hidden)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} does not change")
