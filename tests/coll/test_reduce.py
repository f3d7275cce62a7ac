"""The built-in reductions (pscompy/coll/reduce.h) against numpy, bit by bit: a program in C runs
them, once under AddressSanitizer and UBSan, and once as the compiler optimizes them for the
extension.
"""

from __future__ import annotations

import contextlib
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler import ADDRESS, ROOT, Compiler

HERE = Path(__file__).parent
OPERATIONS: dict[str, np.ufunc] = {  # in the order of psc_op_t
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
# in the order of psc_type_t
TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
LENGTHS = st.sampled_from([0, 1, 7, 1000]) | st.integers(0, 70)


class Answer(NamedTuple):
    known: int
    slow: int
    size: int


class Driver:
    """Runs reductions in a process of reduce_driver.c."""

    def __init__(self, program: Path) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([program], stdin=pipe, stdout=pipe)

    def ask(
        self, op: str, dtype: str, a: np.ndarray, b: np.ndarray, shift: int = 0
    ) -> tuple[Answer, np.ndarray]:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        place = list(OPERATIONS).index(op), TYPES.index(dtype)
        to.write(struct.pack("=IIQQ", *place, len(a), shift) + a.tobytes() + b.tobytes())
        to.flush()
        answer = Answer(*struct.unpack("=IIQ", back.read(16)))
        return answer, np.frombuffer(back.read(answer.known * a.nbytes), a.dtype)

    def __call__(
        self, op: str, dtype: str, a: np.ndarray, b: np.ndarray, shift: int = 0
    ) -> np.ndarray:
        answer, result = self.ask(op, dtype, a, b, shift)
        assert answer.known
        return result

    def close(self) -> None:
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0


@pytest.fixture(scope="module", params=["sanitized", "optimized"])
def reduce(
    request: pytest.FixtureRequest, compiler: Compiler, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    flags = ADDRESS if request.param == "sanitized" else ["-O3"]
    sources = [HERE / "reduce_driver.c", ROOT / "pscompy/coll/reduce.c"]
    with contextlib.closing(
        Driver(compiler(tmp_path_factory.mktemp("reduce") / "driver", sources, flags))
    ) as driver:
        yield driver


def has_meaning(op: str, dtype: str) -> bool:
    kind = np.dtype(dtype).kind
    return not (op in ("min", "max") and kind == "c") and (op[0] != "b" or kind in "biu")


PAIRS = [(op, dtype) for op in OPERATIONS for dtype in TYPES]
KNOWN = [pair for pair in PAIRS if has_meaning(*pair)]


# ---- values ----


def part(dtype: str) -> np.dtype[Any]:
    """The type of the parts of an element: that of a complex number's real part."""
    found: np.dtype[Any] = np.empty(0, dtype).real.dtype
    return found


def bits(dtype: str) -> np.dtype[Any]:
    """The unsigned integers as long as a part of the type."""
    return np.dtype(f"u{part(dtype).itemsize}")


def specials(dtype: str) -> list[int]:
    """The bits of values at which something changes."""
    of = part(dtype)
    if of.kind == "b":
        return [0, 1]
    if of.kind in "iu":
        info: Any = np.iinfo(of)
        values = np.array([0, 1, 2, info.max, info.max - 1, info.min, info.min + 1], of)
    else:
        info = np.finfo(of)
        last = np.nextafter(of.type(1), of.type(2))
        tiny = [info.smallest_subnormal, info.tiny, np.nextafter(info.tiny, of.type(0))]
        values = np.array([0, 1, last, 2, 1.5, np.inf, np.nan, info.max, *tiny], of)
        values = np.concatenate([values, -values])
    found = [int(it) for it in values.view(bits(dtype))]
    infinity = int(np.array([np.inf], of).view(bits(dtype))[0]) if of.kind == "f" else 0
    return [*found, infinity + 1, infinity + 3] if infinity else found  # signalling NaNs


def arrays(dtype: str) -> st.SearchStrategy[np.ndarray]:
    """Up to 20 parts of numbers, which are repeated."""
    any_bits = st.integers(0, 1 if dtype == "?" else 2 ** (8 * bits(dtype).itemsize) - 1)
    values = st.lists(st.sampled_from(specials(dtype)) | any_bits, min_size=1, max_size=20)
    return values.map(lambda it: np.array(it, bits(dtype)))


def fill(parts: np.ndarray, dtype: str, n: int) -> np.ndarray:
    return np.resize(parts, n * np.dtype(dtype).itemsize // parts.itemsize).view(dtype)


# ---- what numpy computes ----


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of complex numbers, of which each operation is rounded; numpy's own has other
    last bits in some places of an array where the processor can multiply and add at once."""
    result = np.empty_like(a)
    result.real = a.real * b.real - a.imag * b.imag
    result.imag = a.real * b.imag + a.imag * b.real
    return result


def expected(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    compute: Callable[..., Any] = OPERATIONS[op]
    if op == "prod" and a.dtype.kind == "c":
        compute = product
    with np.errstate(all="ignore"):
        result: np.ndarray = compute(a, b).astype(a.dtype)
    return result


def keeps_our_zero(of: np.dtype[Any]) -> bool:
    """Whether numpy's minimum and maximum of two zeros are those of reduce.h, which are those of
    x86-64."""
    pair = np.zeros(64, of), -np.zeros(64, of)
    ours = np.signbit(pair[0 if of.itemsize == 2 else 1])
    return all((np.signbit(it(*pair)) == ours).all() for it in (np.minimum, np.maximum))


def undefined(op: str, dtype: str, a: np.ndarray, b: np.ndarray, wanted: np.ndarray) -> Any:
    """Where the bits of a result may be other than numpy's; see reduce.h."""
    if op == "prod" and dtype[0] == "c":
        return np.isnan(wanted)
    if part(dtype).kind == "f" and op in ("sum", "prod"):
        return np.isnan(a) & np.isnan(b)
    if part(dtype).kind == "f" and op in ("min", "max") and not keeps_our_zero(part(dtype)):
        return (a == 0) & (b == 0)
    return False


def check(op: str, dtype: str, a: np.ndarray, b: np.ndarray, got: np.ndarray) -> None:
    wanted = expected(op, a, b)
    differs = got.view(bits(dtype)) != wanted.view(bits(dtype))
    a, b, got, wanted = (it.view(part(dtype)) for it in (a, b, got, wanted))
    alike = (got == wanted) | np.isnan(got) & np.isnan(wanted)
    bad = np.flatnonzero(differs & ~(alike & undefined(op, dtype, a, b, wanted)))
    assert not len(bad), [tuple(it[i].tobytes().hex() for it in (a, b, got, wanted)) for i in bad]


# ---- tests ----


@pytest.mark.parametrize(("op", "dtype"), KNOWN)
def test_each(reduce: Driver, op: str, dtype: str) -> None:
    @settings(max_examples=40)
    @given(arrays(dtype), arrays(dtype), LENGTHS, st.integers(0, 17))
    def run(a: np.ndarray, b: np.ndarray, n: int, shift: int) -> None:
        first, second = fill(a, dtype, n), fill(b, dtype, n)
        check(op, dtype, first, second, reduce(op, dtype, first, second, shift))

    run()


@pytest.mark.parametrize("dtype", TYPES)
def test_each_value_meets_each_other(reduce: Driver, dtype: str) -> None:
    values = np.array(specials(dtype), bits(dtype))
    pairs = (it.ravel() for it in np.meshgrid(values, values))
    a, b = (np.concatenate([it, it[::-1]]).view(dtype) for it in pairs)
    for op in OPERATIONS:
        if has_meaning(op, dtype):
            check(op, dtype, a, b, reduce(op, dtype, a, b))


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
def test_each_float16(reduce: Driver, op: str) -> None:
    """All float16 meet values that make ties, subnormal and infinite numbers of them."""
    every = np.arange(65536, dtype="u2").view("f2")
    for bits_of in (0x8000, 0x0001, 0x03FF, 0x0400, 0x1001, 0x3800, 0x3C00, 0x3C01, 0x4BFF, 0x7BFF):
        other = np.full(len(every), bits_of, "u2").view("f2")
        check(op, "f2", every, other, reduce(op, "f2", every, other))
        check(op, "f2", other, every, reduce(op, "f2", other, every))


@pytest.mark.parametrize(("op", "dtype"), PAIRS)
def test_which_have_a_meaning(reduce: Driver, op: str, dtype: str) -> None:
    answer, _ = reduce.ask(op, dtype, np.empty(0, dtype), np.empty(0, dtype))
    assert answer.size == np.dtype(dtype).itemsize
    assert bool(answer.known) == has_meaning(op, dtype)
    assert bool(answer.slow) == (dtype == "f2" or (op == "prod" and dtype[0] == "c"))
