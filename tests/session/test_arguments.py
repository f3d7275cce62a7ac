"""Arguments that calls refuse: at once, and with a text that says what the call wants."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import pscompy

HUGE = 10**5000  # has more digits than Python turns into a text


class Seconds:
    """A number for C functions, without any of the operators of numbers."""

    def __float__(self) -> float:
        return 0.01

    def __repr__(self) -> str:
        return "Seconds"


@pytest.fixture(scope="module")
def world() -> Iterator[pscompy.World]:
    with pscompy.World() as world:
        yield world


# ---- time-outs ----


def never(world: pscompy.World) -> pscompy.Request[bytearray]:
    """A receive that does not end, of one session."""
    return world.irecv(tag=77)


TIMED: dict[str, Callable[[pscompy.World, Any], object]] = {
    "recv": lambda world, timeout: world.recv(tag=77, timeout=timeout),
    "recv_into": lambda world, timeout: world.recv(bytearray(1), tag=77, timeout=timeout),
    "recv_of": lambda world, timeout: world[0].recv(tag=77, timeout=timeout),
    "recv_status": lambda world, timeout: world.recv_status(tag=77, timeout=timeout),
    "recv_view": lambda world, timeout: world.recv_view(tag=77, timeout=timeout),
    "recv_array": lambda world, timeout: world.recv_array("f8", 3, tag=77, timeout=timeout),
    "recv_obj": lambda world, timeout: world.recv_obj(tag=77, timeout=timeout),
    "recv_obj_of": lambda world, timeout: world[0].recv_obj(tag=77, timeout=timeout),
    "probe": lambda world, timeout: world.probe(tag=77, timeout=timeout),
    "mprobe": lambda world, timeout: world.mprobe(tag=77, timeout=timeout),
    "probe_obj": lambda world, timeout: world.probe_obj(tag=77, timeout=timeout),
    "wait": lambda world, timeout: never(world).wait(timeout),
    "result": lambda world, timeout: never(world).result(timeout),
    "exception": lambda world, timeout: never(world).exception(timeout),
    "wait_all": lambda world, timeout: pscompy.wait_all([never(world)], timeout),
    "wait_any": lambda world, timeout: pscompy.wait_any([never(world)], timeout),
    "accept": lambda world, timeout: world.session.listen().accept(timeout),
    "session.serve": lambda world, timeout: world.session.serve(timeout),
}
TIMES = [Fraction(1, 100), Decimal("0.01"), np.float32(0.01), Seconds(), 0, False]


@pytest.mark.parametrize("timeout", TIMES, ids=repr)
@pytest.mark.parametrize("call", TIMED)
def test_a_timeout_is_any_number(world, call, timeout):
    with pytest.raises(pscompy.Timeout, match=r"0(\.01)? s"):
        TIMED[call](world, timeout)


@pytest.mark.parametrize("timeout", ["1", b"1", [1], 1j], ids=repr)
@pytest.mark.parametrize("call", [*TIMED, "serve", "with_options"])
def test_a_timeout_that_is_no_number(world, call, timeout):
    calls = {
        **TIMED,
        "serve": lambda world, timeout: world.serve(timeout),
        "with_options": lambda world, timeout: world.with_options(timeout=timeout),
    }
    with pytest.raises(TypeError, match="a timeout is None or a number of seconds, not "):
        calls[call](world, timeout)


@pytest.mark.parametrize("timeout", [-1, Fraction(-1), Decimal("nan")], ids=repr)
@pytest.mark.parametrize("call", ["recv", "wait_all", "accept", "session.serve", "serve"])
def test_a_timeout_below_0(world, call, timeout):
    calls = {**TIMED, "serve": lambda world, timeout: world.serve(timeout)}
    with pytest.raises(ValueError, match="a timeout is None or at least 0 seconds, not "):
        calls[call](world, timeout)


@pscompy.action
def waits_for_a_message(tag: int) -> None:
    """An action that ends when the test sends a message."""
    ACTING[0].recv(tag=tag, timeout=60)


ACTING: list[pscompy.World] = []
TAGS = itertools.count(100)


@pytest.mark.parametrize("timeout", TIMES, ids=repr)
def test_a_timeout_of_an_action_is_any_number(world, timeout):
    ACTING[:] = [world]
    tag = next(TAGS)
    futures = [world.submit(0, waits_for_a_message, tag) for _ in range(2)]
    for wait in (futures[0].result, futures[1].exception):
        with pytest.raises(TimeoutError):
            wait(timeout)
    with pytest.raises(pscompy.Timeout):
        world.with_options(timeout=timeout).call(0, waits_for_a_message, tag)
    with pytest.raises(pscompy.Timeout):
        world.serve(timeout)
    for _ in range(3):
        world.send(b"", dest=0, tag=tag)
    assert [future.result(60) for future in futures] == [None, None]
    assert world.serve(Fraction(60)) is None


# ---- numbers that have no text ----


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (IndexError, "no rank <int>", lambda world: world[HUGE]),
        (IndexError, "no rank <int>", lambda world: world.send(b"", HUGE)),
        (IndexError, "no rank <int>", lambda world: world.recv(source=-HUGE)),
        (IndexError, "no rank <int>", lambda world: world.recv_obj(source=HUGE)),
        (IndexError, "no rank <int>", lambda world: world.submit(HUGE, print)),
        (IndexError, "rank <int> cannot", lambda world: world.broadcast(bytearray(1), root=HUGE)),
        (ValueError, "a tag is .*, not <int>", lambda world: world.send(b"", 0, HUGE)),
        (ValueError, "a tag is .*, not <int>", lambda world: world.recv(tag=-HUGE)),
        (ValueError, "offset is .*, not <int>", lambda world: world[0].put(b"", b"", HUGE)),
        (ValueError, "id is .*, not <int>", lambda world: world[0].am_send(HUGE, b"", b"")),
        (pscompy.ConnectError, r"\*:<int>", lambda world: world.session.listen(port=HUGE)),
        (
            pscompy.ConfigError,
            "PSP_SPIN_US: <int> cannot be written",
            lambda world: pscompy.Session(config={"SPIN_US": HUGE}),
        ),
    ],
)
def test_a_number_that_has_no_text_is_refused_as_any_other(world, error, text, call):
    with pytest.raises(error, match=text):
        call(world)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("dest is the number of a rank, not <.*Unprintable>", lambda w, it: w.send(b"", it)),
        ("source is the number of a rank, not <.*Unprintable>", lambda w, it: w.recv(source=it)),
        ("source is the number of a rank, not <.*Unprintable>", lambda w, it: w.recv_obj(it)),
        ("dest is the number of a rank, not <.*Unprintable>", lambda w, it: w.send_obj(1, it)),
        ("a tag is a number .*, not <.*Unprintable>", lambda w, it: w.recv(tag=it)),
    ],
)
def test_an_object_that_has_no_text_is_refused_as_any_other(world, text, call):
    with pytest.raises(TypeError, match=text):
        call(world, Unprintable())


@pytest.mark.parametrize("name", ["\ud800/x", "a\0b"])
def test_a_name_of_a_file_that_no_file_can_have(name):
    with pytest.raises(pscompy.ConfigError, match=r"PSP_DEBUG_OUT: .* must be a file"):
        pscompy.Session(config={"DEBUG_OUT": name})


def test_the_name_of_a_variable_is_a_text():
    with pytest.raises(TypeError, match="a variable's name is a str, not int"):
        pscompy.Session(config={5: 1})


# ---- arrays to receive: refused before a message is waited for ----


WRONG = [
    (TypeError, {"dtype": 3, "shape": "f8"}),
    (TypeError, {"dtype": object, "shape": 3}),
    (TypeError, {"dtype": "V0", "shape": 3}),
    (TypeError, {"dtype": "f8", "shape": "ab"}),
    (TypeError, {"dtype": "f8", "shape": (2, 2.5)}),
    (ValueError, {"dtype": "f8", "shape": -3}),
    (ValueError, {"dtype": "f8", "shape": (2, -3)}),
    (ValueError, {"dtype": "f8", "shape": [1] * 99}),
    (ValueError, {"dtype": "f8", "shape": (2**40, 2**40)}),
]


@pytest.mark.parametrize(("error", "form"), WRONG)
@pytest.mark.parametrize("receive", ["recv_array", "recv_view"])
def test_an_array_that_cannot_be_is_refused_before_the_wait(world, receive, error, form):
    for receiver in (world, world[0]):
        with pytest.raises(error):
            getattr(receiver, receive)(**form)


@pytest.mark.parametrize("form", [{"dtype": object}, {"shape": -1}, {"shape": "ab"}])
def test_a_view_that_cannot_be_is_refused_before_the_wait(world, form):
    with pytest.raises((TypeError, ValueError)):
        world.recv_view(**form)


@pytest.mark.parametrize("number", ["2", 2.5, [2]])
def test_endpoints_are_counted(world, number):
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        world.endpoints(number)


# ---- lists ----


@pytest.mark.parametrize("function", [pscompy.wait_all, pscompy.wait_any])
def test_requests_are_waited_for_in_a_list(world, function):
    first, second = world.irecv(tag=77), world.irecv(tag=77)
    for arguments in ((first, second), (first,), (first, second, first), (None,), (5, 5)):
        with pytest.raises(TypeError, match=r"in a list, as in wait_all\(\[a, b\]\), not "):
            function(*arguments)
    with pytest.raises(TypeError, match="in a list"):
        function(requests=first)
    with pytest.raises(TypeError, match="only Requests can be waited for, not list"):
        function([[first, second]])

    def broken() -> Iterator[object]:
        yield first
        raise TypeError("of the program")

    with pytest.raises(TypeError, match=r"^of the program$"):
        function(broken())
    assert first.cancel()
    assert second.cancel()


@pytest.mark.parametrize("call", ["register", "pin"])
def test_memory_is_registered_one_buffer_at_a_time(world, call):
    with pytest.raises(TypeError, match="one bytes-like object, not list"):
        getattr(world, call)([bytearray(4)])
