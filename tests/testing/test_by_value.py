"""Functions that a far process gets as their code."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from pscompy.testing.process import Far

LIST: list[int] = []


@pytest.fixture(scope="module")
def far() -> Iterator[Far]:
    process = Far()
    yield process
    process.close()


def factorial(here, n, *, start=1):
    """Uses itself, a default and a keyword."""
    return start if n == 0 else n * factorial(here, n - 1, start=start)


def modules(here):
    import sys

    return sorted(sys.modules)


def keep(here, value):
    LIST.append(value)
    here.kept = [*vars(here).get("kept", []), value]
    return LIST, here.kept


def test_what_a_function_uses_goes_with_it(far):
    around = [1, 2]
    assert far(lambda here: os.getpid()) == far.pid != os.getpid()
    assert far(lambda here, more: sum(around) + more, 3) == 6
    assert far(factorial, 5, start=2) == 240


def test_a_function_as_an_argument(far):
    assert far(lambda here, call: call(here, 3), factorial) == 6


def test_the_module_of_the_test_is_not_imported(far):
    names = far(modules)
    assert "pscompy" in names
    assert not {"pytest", "_pytest", __name__} & set(names)


def test_a_value_of_the_module_is_a_copy_and_here_stays(far):
    assert far(keep, 1) == ([1], [1])
    assert far(keep, 2) == ([2], [1, 2])
    assert LIST == []


def test_an_assertion_fails_with_its_values(far):
    def fails(here, number):
        assert number == 3

    far(fails, 3)
    with pytest.raises(AssertionError, match="2 == 3"):
        far(fails, 2)


def test_what_cannot_be_sent_back_is_a_text(far):
    assert "lock" in far(lambda here: threading.Lock())
