"""Transition tables as data: the keys of their rows, and `step`, which looks a transition up.

An event without a transition raises `LocalProtocolError`; `Handshake.receive`, the only place where
bytes of the peer arrive, turns it into `RemoteProtocolError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from pscompy.errors import ProtocolError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class LocalProtocolError(Exception):
    """This process did something that the state does not allow: a defect of pscompy."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the state, or the format, does not allow."""


class Row(Enum):
    """A key of the tables, hashed as an object: the hash of Enum is written in Python, and several
    times as slow."""

    __hash__ = object.__hash__


def step(table: Mapping[S, Mapping[E, S]], state: S, event: E) -> S:
    """Return the state after `event`. Raises `LocalProtocolError` if the table has none."""
    after = table[state].get(event)
    if after is None:
        raise LocalProtocolError(f"{event.name} is not possible in state {state.name}")
    return after
