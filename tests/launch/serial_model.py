"""Collective calls at random, and what numpy computes for them on one rank.

All ranks draw the same calls and the operands of all ranks from one seed. What may differ between
ranks each draws for itself: how its arrays lie in memory, and where its result is put.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pscompy import Op
from pscompy.world.reductions import OF_OBJECTS

TYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
OPERATIONS: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "land": np.logical_and,
    "lor": np.logical_or,
    "lxor": np.logical_xor,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
MATRIX = np.dtype([("m", "i8", (2, 2))])
LONG = 64 << 10  # bytes from which on algorithms differ
BYTES = (0, 1, 24, 1000, 8191, 8192, 8193, LONG - 1, LONG, LONG + 16, 3 * LONG)
LAYOUTS = ("plain", "strided", "backwards", "fortran", "unaligned")


def times(a: Any, b: Any) -> Any:
    """The product of matrices, which does not commute."""
    product = np.empty_like(b)
    product["m"] = a["m"] @ b["m"]
    return product


@dataclass
class Call:
    """A call of one rank, and what it must return."""

    name: str
    arguments: list[Any]
    wanted: Any
    keywords: dict[str, Any] = field(default_factory=dict)
    told: str = ""  # for the message of a failure
    kept: list[tuple[Any, Any]] = field(default_factory=list)  # operands, and copies of them
    posts: bool = True  # there is a call with i…

    def check(self, result: Any) -> None:
        where = f"{self.name} {self.told}"
        recvbuf = self.keywords.get("recvbuf")
        if recvbuf is not None and self.wanted is not None:
            assert result is recvbuf, where
        assert alike(result, self.wanted), f"{where}: {result!r} is not {self.wanted!r}"
        assert all(alike(*it) for it in self.kept), f"{where}: an operand was changed"


def alike(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, np.ndarray):
        return (
            isinstance(found, np.ndarray)
            and found.dtype == wanted.dtype
            and found.shape == wanted.shape
            and np.array_equal(found, wanted, equal_nan=wanted.dtype.kind in "fc")
        )
    if isinstance(wanted, (list, tuple)):
        return (
            type(found) is type(wanted)
            and len(found) == len(wanted)
            and all(map(alike, found, wanted))
        )
    return type(found) is type(wanted) and bool(found == wanted or found != found)


class Draw:
    def __init__(self, seed: int, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.same = random.Random(seed)
        self.values = np.random.default_rng(seed)
        self.own = random.Random(f"{seed} {rank}")

    def call(self) -> Call:
        """The next call: the same on all ranks."""
        make = self.same.choice(
            [self.barrier, self.bcast, self.numbers, self.gathered_numbers]
            + 4 * [self.reduction]
            + 2 * [self.reduce_scatter, self.gathering, self.scatter, self.alltoall]
        )
        return make()

    # ---- operands ----

    def rows(self, dtype: Any) -> int:
        return self.same.choice(BYTES) // np.dtype(dtype).itemsize

    def counts(self) -> list[int]:
        """The items of each rank's part, often none."""
        whole = self.same.choice(BYTES) // 8
        cuts = sorted(self.same.choice((0, whole, self.same.randint(0, whole))) for _ in
                      range(self.size - 1))  # fmt: skip
        return [end - begin for begin, end in zip([0, *cuts], [*cuts, whole], strict=True)]

    def data(self, dtype: Any, *shape: int, op: str = "") -> Any:
        """Numbers of which any order of operands makes the same result, exactly."""
        least, most = (1, 3) if op == "prod" else (0, 8)
        if dtype == MATRIX:
            array = np.zeros(shape, MATRIX)
            array["m"] = self.values.integers(-9, 9, (*shape, 2, 2))
            return array
        array = self.values.integers(least, most, shape).astype(dtype)
        kind = array.dtype.kind
        if kind in "iu":
            array += np.iinfo(dtype).max // 3 if op in ("band", "bor", "bxor", "sum") else 0
        if kind == "f" and op in ("min", "max") and array.size:
            array.flat[:: self.same.randint(1, 99)] = np.nan
        if kind == "c":
            array.imag = self.values.integers(-1, 1, shape)
        return array

    def laid(self, array: Any, writable: bool = True) -> Any:
        """A copy of the array that lies in memory in some way."""
        layout = self.own.choice(LAYOUTS) if array.ndim else "plain"
        if layout == "strided":
            copy = np.empty((2 * len(array), *array.shape[1:]), array.dtype)[::2]
        elif layout == "backwards":
            copy = np.empty_like(array, order="C")[::-1]
        elif layout == "fortran":
            copy = np.empty_like(array, order="F")
        elif layout == "unaligned":
            memory = np.empty(array.nbytes + 1, "u1")[1:]
            copy = memory.view(array.dtype).reshape(array.shape)
        else:
            copy = np.empty_like(array)
        copy[...] = array
        copy.flags.writeable = writable or self.own.random() < 0.5
        return copy

    def put(self, call: Call, operand: Any, wanted: Any, *, in_place: bool = True) -> Call:
        """Give a call this operand, and maybe memory for its result."""
        operand = np.asarray(operand)
        into = self.own.choice(("new", "given", "in place"))
        if into == "in place" and in_place and wanted is not None:
            buf = self.laid(operand)
            call.arguments, call.keywords["recvbuf"] = [buf], buf
            return call
        buf = self.laid(operand, writable=False)
        call.arguments, call.kept = [buf], [(buf, operand)]
        if into != "new" and wanted is not None:
            call.keywords["recvbuf"] = self.laid(np.zeros_like(wanted))
        return call

    # ---- calls ----

    def barrier(self) -> Call:
        return Call("barrier", [], None)

    def bcast(self) -> Call:
        dtype, root = self.same.choice(TYPES), self.same.randrange(self.size)
        data = self.data(dtype, self.rows(dtype))
        buf = self.laid(data, False) if self.rank == root else self.laid(np.zeros_like(data))
        return Call("bcast", [buf], data, {"root": root}, f"{dtype} {data.shape} from {root}")

    def operation(self) -> tuple[str, Any, Any, Callable[..., Any]]:
        """The name of an operation, what is given for it, a type, and what it does."""
        if self.same.random() < 0.25:
            given = self.same.choice((times, Op(times)))
            return "times", given, MATRIX, times
        name, dtype = self.same.choice(list(OPERATIONS)), self.same.choice(TYPES)
        if (name in ("min", "max") and dtype[0] == "c") or (name[0] == "b" and dtype[0] in "fc"):
            return self.operation()
        function = OPERATIONS[name]
        given = self.same.choice((name, function, Op(function, commutes=True)))
        if name[0] == "l" and isinstance(given, Op):
            given = name
        return name, given, dtype, function

    def reduction(self) -> Call:
        name = self.same.choice(("reduce", "allreduce", "scan", "exscan"))
        op, given, dtype, function = self.operation()
        shape = self.same.choice(((self.rows(dtype),), (self.rows(dtype) // 3, 3), ()))
        operands = self.data(dtype, self.size, *shape, op=op)
        root = self.same.randrange(self.size)
        last = {"scan": self.rank + 1, "exscan": self.rank}.get(name, self.size)
        gets = last > 0 and (name != "reduce" or self.rank == root)
        wanted = folded(function, operands[:last], dtype) if gets else None
        keywords = {"op": given, **({"root": root} if name == "reduce" else {})}
        call = Call(name, [], wanted, keywords, f"{given} of {dtype} {shape}, root {root}")
        return self.put(call, operands[self.rank], wanted)

    def reduce_scatter(self) -> Call:
        op, given, dtype, function = self.operation()
        counts = self.counts() if self.same.random() < 0.5 else None
        each = counts or [self.rows(dtype) // self.size] * self.size
        operands = self.data(dtype, self.size, sum(each), op=op)
        wanted = folded(function, operands, dtype)[part(each, self.rank)]
        keywords = {"op": given, "counts": counts}
        call = Call("reduce_scatter", [], wanted, keywords, f"{given} of {dtype}, {each}")
        return self.put(call, operands[self.rank], wanted, in_place=False)

    def gathering(self) -> Call:
        name, dtype = self.same.choice(("gather", "allgather")), self.same.choice([*TYPES, MATRIX])
        counts = self.counts() if self.same.random() < 0.5 else None
        root = self.same.randrange(self.size)
        gets = name == "allgather" or self.rank == root
        if counts is None:
            shape = self.same.choice(((self.rows(dtype) // self.size,), ()))
            whole = self.data(dtype, self.size, *shape)
            operand = whole[self.rank, ...]
        else:
            whole = self.data(dtype, sum(counts), 2)
            operand = whole[part(counts, self.rank)]
        keywords = {"counts": counts, **({"root": root} if name == "gather" else {})}
        told = f"{dtype} {whole.shape}, {counts}, root {root}"
        wanted = whole if gets else None
        call = Call(name, [], wanted, keywords, told)
        return self.put(call, operand, wanted, in_place=False)

    def scatter(self) -> Call:
        dtype, root = self.same.choice([*TYPES, MATRIX]), self.same.randrange(self.size)
        counts = self.counts() if self.same.random() < 0.5 else None
        each = counts or [self.rows(dtype) // self.size] * self.size
        whole = self.data(dtype, sum(each), 2)
        wanted = whole[part(each, self.rank)]
        keywords = {"counts": counts, "root": root}
        call = Call("scatter", [], wanted, keywords, f"{dtype} {each} from {root}")
        if self.rank == root:
            return self.put(call, whole, wanted, in_place=False)
        keywords["recvbuf"] = self.laid(np.zeros_like(wanted))
        return call

    def alltoall(self) -> Call:
        dtype = self.same.choice([*TYPES, MATRIX])
        if self.same.random() < 0.5:
            n = self.rows(dtype) // self.size
            tables = [[n] * self.size] * self.size
        else:
            tables = [self.counts() for _ in range(self.size)]
        operands = [self.data(dtype, sum(it)) for it in tables]
        parts = [it[part(row, self.rank)] for it, row in zip(operands, tables, strict=True)]
        wanted, equal = np.concatenate(parts), tables[0] == [len(parts[0])] * self.size
        equal = equal and all(it == tables[0] for it in tables)
        keywords = {} if equal else {"counts": tables[self.rank]}
        told = f"{dtype} {tables}"
        call = Call("alltoall", [], wanted, keywords, told, posts=equal)
        return self.put(call, operands[self.rank], wanted, in_place=equal)

    # ---- numbers ----

    def number(self, op: str) -> Any:
        if op in ("min", "max"):  # of equal numbers of two kinds either may be the result
            large = self.same.getrandbits(40)
            return self.same.choice([large, large + 0.5, np.int64(large), True, float("nan")])
        whole = self.same.randint(1, 3)
        if op[0] == "b":
            return whole
        kinds: list[Any] = [whole, float(whole), whole + 0.5, np.float64(whole), np.int32(whole)]
        kinds += [complex(whole, 1), False]
        return self.same.choice(kinds)

    def numbers(self) -> Call:
        name = self.same.choice(("reduce", "allreduce", "scan", "exscan"))
        op = self.same.choice(list(OPERATIONS))
        numbers = [self.number(op) for _ in range(self.size)]
        plain = [plain_number(it) for it in numbers]
        root = self.same.randrange(self.size)
        last = {"scan": self.rank + 1, "exscan": self.rank}.get(name, self.size)
        gets = last > 0 and (name != "reduce" or self.rank == root)
        wanted = functools.reduce(OF_OBJECTS[op], plain[:last]) if gets else None
        keywords = {"op": op, **({"root": root} if name == "reduce" else {})}
        told = f"{op} of {numbers}, root {root}"
        return Call(name, [numbers[self.rank]], plain_number(wanted), keywords, told)

    def gathered_numbers(self) -> Call:
        numbers = [self.number("sum") for _ in range(self.size)]
        return Call("allgather", [numbers[self.rank]], np.array([plain_number(it) for it in
                    numbers]), told=str(numbers))  # fmt: skip

    # ---- objects ----

    def objects(self) -> Call:
        """A call that moves objects. Texts joined tell the order of the ranks."""
        name = self.same.choice(("bcast", "gather", "allgather", "scatter", "alltoall", "reduce",
                                 "allreduce"))  # fmt: skip
        root, n = self.same.randrange(self.size), self.same.choice((0, 1, 9000, LONG, 3 * LONG))
        at_root = self.rank == root
        ranks = range(self.size)
        given = [[str(it), np.full(n, it, "f8")] for it in ranks]
        keywords = {} if name[:2] == "al" else {"root": root}
        argument: Any = given[self.rank]
        if name == "bcast":
            argument, wanted = given[root] if at_root else None, given[root]
        elif name == "gather":
            wanted = given if at_root else None
        elif name == "allgather":
            wanted = given
        elif name == "scatter":
            argument, wanted = given if at_root else None, given[self.rank]
        elif name == "alltoall":
            argument = [[self.rank, it, bytes(n)] for it in ranks]
            wanted = [[it, self.rank, bytes(n)] for it in ranks]
        else:
            argument, wanted = str(self.rank) * 3, "".join(str(it) * 3 for it in ranks)
            wanted = wanted if name == "allreduce" or at_root else None
        return Call(f"{name}_obj", [argument], wanted, keywords, f"{n}, root {root}", posts=False)


def plain_number(value: Any) -> Any:
    """A number as it comes back: numpy's as Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    return int(value) if isinstance(value, bool) else value


def folded(function: Callable[..., Any], operands: Any, dtype: Any) -> Any:
    total = operands[0]
    for it in operands[1:]:
        total = np.asarray(function(total, it)).astype(dtype)
    return np.array(total)


def part(counts: Sequence[int], rank: int) -> slice:
    return slice(sum(counts[:rank]), sum(counts[: rank + 1]))
