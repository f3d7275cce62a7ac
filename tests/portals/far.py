"""What the far process of a test here does, beside `pscompy.testing.remote_side`."""

from __future__ import annotations

from pscompy.api.connection import Connection
from pscompy.api.request import Request, wait_all
from pscompy.testing.remote_side import BOUND, Here, payload

_second: list[Connection] = []
_sends: list[Request] = []


def flood_tagged(here: Here, count: int, nbytes: int) -> None:
    """All under way at once, each with its place as its tag."""
    post_tagged(here, count, nbytes)
    finish_tagged(here)


def post_tagged(here: Here, count: int, nbytes: int) -> None:
    """The same, only begun."""
    _sends[:] = [here.c.isend(payload(nbytes, place), tag=place) for place in range(count)]


def finish_tagged(here: Here) -> None:
    wait_all(_sends, timeout=BOUND)


def connect_again(here: Here, address: str) -> None:
    assert here.session is not None
    connection = here.session.connect(address)
    connection.open(timeout=BOUND)
    _second[:] = [connection]


def echo_both(here: Here) -> None:
    here.c.send(here.c.recv(timeout=BOUND), timeout=BOUND)
    _second[0].send(_second[0].recv(timeout=BOUND), timeout=BOUND)
