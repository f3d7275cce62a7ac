"""Functions that the far process of these tests runs, beside those of
`pscompy.testing.remote_side`.
"""

from __future__ import annotations

from typing import Any

from pscompy import wait_all
from pscompy.testing.remote_side import BOUND, payload


def flood_tagged(here: Any, count: int, nbytes: int) -> None:
    """Send `count` messages, all in flight at once; the tag of each is its index."""
    post_tagged(here, count, nbytes)
    finish_tagged(here)


def post_tagged(here: Any, count: int, nbytes: int) -> None:
    """Post the sends of flood_tagged without waiting for them."""
    here.sends = [here.c.isend(payload(nbytes, place), tag=place) for place in range(count)]


def finish_tagged(here: Any) -> None:
    wait_all(here.sends, timeout=BOUND)


def connect_again(here: Any, address: str) -> None:
    here.second = here.session.connect(address)
    here.second.open(timeout=BOUND)


def echo_both(here: Any) -> None:
    here.c.send(here.c.recv(timeout=BOUND), timeout=BOUND)
    here.second.send(here.second.recv(timeout=BOUND), timeout=BOUND)
