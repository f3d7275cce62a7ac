"""Functions of a test that run in a process of their own."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
from string import ascii_lowercase as letters
from string import digits

import pytest

from tests.program import module, program

FACTOR = len("ab")
BOTH: str = letters[:3]


def double(number: int) -> int:
    return FACTOR * number


def shout(*numbers: int, name: str) -> None:
    import sys

    print(name, *map(double, numbers), "pytest" in sys.modules)


def ran(text: str) -> str:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_function_runs_alone_with_its_arguments():
    assert ran(program(shout, 1, 2, name="it's")) == "it's 2 4 False\n"
    assert ran(program(shout, 1, 2, uses=[double], name="it's")) == "it's 2 4 False\n"


def test_a_function_of_a_function():
    def inner(text: bytes) -> None:
        print(text)

    assert ran(program(inner, b"\x00")) == "b'\\x00'\n"


def test_a_program_has_only_what_its_function_uses():
    def inner(ran: pytest.Item | None = None) -> None:
        class Doubled:
            size = double(3)

        print(letters[0], concurrent.futures.__name__, Doubled.size, ran)

    text = program(inner)
    assert ran(text) == "a concurrent.futures 6 None\n"
    assert not any(name in text for name in ("import pytest", "subprocess", "shout", "digits"))


def test_a_constant_brings_what_it_was_made_of():
    def inner() -> None:
        print(BOTH, digits)

    assert ran(program(inner)) == "abc 0123456789\n"


def test_a_module_with_other_constants():
    names: dict[str, object] = {}
    exec(module(double, FACTOR=5), names)
    assert names["double"](3) == 15


def test_a_variable_of_the_function_around_is_refused():
    number = 3

    def inner() -> None:
        print(number)

    with pytest.raises(ValueError, match="inner uses number: pass them"):
        program(inner)


def test_an_argument_that_cannot_be_written_is_refused():
    with pytest.raises((ValueError, SyntaxError)):
        program(double, object())
