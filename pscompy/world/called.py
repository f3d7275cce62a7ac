"""The calls of ranks in words, for the error when ranks have called different things."""

from __future__ import annotations

from typing import Final, TypeAlias

from pscompy.api.awaited import COLLECTIVES

OPERATIONS: Final = ("sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor")
"""The operations by name, in the order of psc_op_t."""
TYPES: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
"""The names of the types of elements, in the order of psc_type_t."""

Called: TypeAlias = tuple[int, int, int, int, str, int, int]
"""psc_called_t: collective, root, operation, type, algorithm, bytes, and a hash of the counts."""


def differing(first: Called, other: Called, rank: int) -> str:
    """Return what rank 0 and another rank have called."""
    same = first[:6] == other[:6]  # with the same words for both: only counts differ
    text = f"rank 0 has called {_words(first)}, rank {rank} {_words(other)}"
    return text + (", with other counts" if same else "")


def _words(called: Called) -> str:
    coll, root, op, kind, algorithm, nbytes, counts = called
    length = "parts with counts" if counts else f"{nbytes} B"
    parts = [f"{COLLECTIVES[coll]} of {length}" if coll else COLLECTIVES[coll]]
    if op == len(OPERATIONS):
        parts.append("a function")
    elif op >= 0:
        parts.append(f"{OPERATIONS[op]} of {TYPES[kind] if kind >= 0 else 'numbers'}")
    if root >= 0:
        parts.append(f"root {root}")
    return f"{', '.join(parts)} (algorithm {algorithm})"
