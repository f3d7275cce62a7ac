"""All orders of the steps by which threads sleep and wake each other; see wake_model.py."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from tests.core.wake_model import BEGIN, INGREDIENTS, Model

# A poller of these kinds returns for what is queued, takes it itself, and waits again.
TAKING = {"wait", "send", "stay", "brief", "take"}
PAIRS = [
    pair
    for pair in combinations_with_replacement(BEGIN, 2)
    if "take" not in pair or not set(pair) - {"take"} <= TAKING
]
TRIPLES = [  # those with most states last
    ("outside", "wait", "call"),
    ("outside", "outside", "glance"),
    ("wait", "wait", "stay"),
    ("wait", "wait", "brief"),
    ("wait", "send", "call"),
    ("stand", "stay", "brief"),
    ("stand", "wait", "stay"),
    ("stand", "wait", "call"),
    ("outside", "send", "stay"),
    ("outside", "wait", "brief"),
    ("outside", "outside", "wait"),
    ("own", "own", "take"),
    ("own", "take", "call"),
    ("own", "take", "outside"),
    ("own", "stand", "call"),
    ("own", "own", "stand"),
]
POLLERS_AND_SLEEPERS = ("outside", "wait", "brief", "call")  # two threads of each kind


@pytest.mark.parametrize("kinds", [*PAIRS, *TRIPLES], ids="-".join)
def test_no_order_loses_an_event(kinds: tuple[str, ...]) -> None:
    states, lost = Model(kinds).explore()
    assert lost is None
    assert states > 3


def test_two_pollers_and_two_sleepers_lose_no_event() -> None:
    assert Model(POLLERS_AND_SLEEPERS).explore()[1] is None


@pytest.mark.parametrize("ingredient", INGREDIENTS, ids=lambda name: name.replace(" ", "-"))
def test_without_any_ingredient_some_order_does(ingredient: str) -> None:
    assert any(Model(kinds, without=ingredient).explore()[1] for kinds in [*PAIRS, *TRIPLES])
