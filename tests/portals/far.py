"""Functions that the far process of these tests runs, beside those of
`pscompy.testing.remote_side`.
"""

from __future__ import annotations

from pscompy.api.connection import Connection
from pscompy.api.request import Request, wait_all
from pscompy.testing.remote_side import BOUND, Here, payload

_second: list[Connection] = []
_sends: list[Request] = []


def flood_tagged(here: Here, count: int, nbytes: int) -> None:
    """Send `count` messages, all in flight at once; the tag of each is its index."""
    post_tagged(here, count, nbytes)
    finish_tagged(here)


def post_tagged(here: Here, count: int, nbytes: int) -> None:
    """Post the sends of flood_tagged without waiting for them."""
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
