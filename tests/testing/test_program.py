"""Functions of a test that run in a process of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pscompy.testing.program import program


def double(number: int) -> int:
    return 2 * number


def shout(*numbers: int, name: str) -> None:
    import sys

    print(name, *map(double, numbers), "pytest" in sys.modules)


def ran(text: str) -> str:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_function_runs_alone_with_its_arguments():
    assert ran(program(shout, 1, 2, uses=[double], name="it's")) == "it's 2 4 False\n"


def test_a_function_of_a_function():
    def inner(text: bytes) -> None:
        print(text)

    assert ran(program(inner, b"\x00")) == "b'\\x00'\n"


def test_an_argument_that_cannot_be_written_is_refused():
    with pytest.raises((ValueError, SyntaxError)):
        program(double, object())
