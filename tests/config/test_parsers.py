"""The parsers accept every usual spelling and nothing else."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pscompy.config.parsers import (
    AUTO,
    INF,
    LONGEST,
    Parser,
    as_number,
    choice,
    count,
    flag,
    integer,
    nbytes,
    priority,
    seconds,
    size,
    wait,
)

UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
NUMBERS = (nbytes, count, flag, seconds, priority, integer(1, 9), size(1))


@given(
    st.integers(0, 2**20),
    st.sampled_from(sorted(UNITS)),
    st.sampled_from(["", "b", "B", "ib", "iB"]),
    st.booleans(),
    st.sampled_from(["", " "]),
)
def test_sizes_scale_by_their_unit(number, unit, suffix, upper, space):
    written = f"{number}{space}{unit.upper() if upper else unit}{suffix}"
    assert nbytes(written) == number * UNITS[unit]


@given(st.integers(0, INF))
def test_plain_integers_are_themselves(number):
    assert nbytes(str(number)) == number
    assert count(f" {number} ") == number


@given(st.integers(INF + 1))
def test_what_64_bits_do_not_hold_is_refused(number):
    for parser in (nbytes, count):
        with pytest.raises(ValueError):
            parser(str(number))


@given(st.floats(0, 1e6, allow_nan=False))
def test_seconds_are_read_with_their_unit(number):
    written = f"{number:.6f}"
    assert seconds(written) == float(written)
    assert seconds(written + "ms") == pytest.approx(float(written) / 1e3)
    assert seconds(written + "us") == pytest.approx(float(written) / 1e6)


@given(st.text(), st.sampled_from(NUMBERS))
def test_any_text_is_a_value_or_a_value_error(given_text, parser):
    try:
        value = parser(given_text)
    except ValueError:
        return
    assert isinstance(value, int | float)
    assert value >= 0 or value == AUTO


def test_words_for_extremes():
    assert nbytes("inf") == nbytes("INF") == count("inf") == INF
    assert nbytes("auto") == integer(auto=True)("auto") == AUTO
    assert seconds("inf") == math.inf
    assert nbytes("1.5k") == 1536


@pytest.mark.parametrize("given_text", ["3000000", "9999999999ms", "9" * 400])
def test_long_times_are_what_a_wait_takes(given_text):
    assert seconds(given_text) == wait(given_text) == wait("inf") == LONGEST


@pytest.mark.parametrize(
    ("parser", "bad"),
    [
        (nbytes, "8q"),
        (nbytes, "-1"),
        (nbytes, ""),
        (nbytes, "0.3"),
        (nbytes, "1e3"),
        (nbytes, "\u0661"),  # a digit, but not an ASCII digit
        (size(), "auto"),
        (size(1), "0"),
        (count, "-3"),
        (count, "1.0"),
        (integer(1, 9), "10"),
        (integer(1, 9), "inf"),
        (flag, "2"),
        (flag, "maybe"),
        (seconds, "-1"),
        (seconds, "nan"),
        (seconds, "1h"),
        (priority, "-1"),
        (choice("put", "get"), "pot"),
    ],
)
def test_refused(parser: Parser, bad: str):
    with pytest.raises(ValueError):
        parser(bad)


@pytest.mark.parametrize(
    ("written", "value"),
    [("1", True), ("yes", True), ("On", True), ("TRUE", True), ("0", False), ("off", False)],
)
def test_flags(written, value):
    assert flag(written) is value


def test_a_choice_is_told_in_lower_case():
    assert choice("put", "get")(" PUT ") == "put"


def test_allowed_tells_the_range():
    assert size(1, 4096).allowed.endswith("at least 1, at most 4096")
    assert integer(auto=True).allowed == "a whole number, or inf, or auto"
    assert choice("put", "get").allowed == "one of put, get"


def test_numbers_for_c():
    assert as_number(True) == 1
    assert as_number(4096) == 4096
    assert as_number(0.25) == 250_000_000
    assert as_number(math.inf) == as_number(1e10) == INF
    assert as_number("put") == 0
