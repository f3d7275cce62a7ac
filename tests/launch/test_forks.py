"""Forks of ranks: what pscompy returns to a program is as private as ordinary memory."""

from __future__ import annotations

import pytest

from tests.forking import WAYS, act_and_fork, fork_amid_transfers, receive_and_fork

OVER = {
    "shm": (2, {"PSP_TCP": "0"}),
    "tcp": (2, {"PSP_SHM": "0"}),
    "self": (1, {}),
}


@pytest.fixture(params=OVER)
def over(request):
    """The number of ranks, and the variables, for messages over a transport or to oneself."""
    return OVER[request.param]


def test_received_arrays_are_private(run, script, over):
    n, env = over
    assert run.lines(n, script(receive_and_fork), **env) == sorted(WAYS)


def test_arrays_of_actions_are_private(run, script, over):
    n, env = over
    assert run.lines(n, script(act_and_fork), **env) == ["argument", "call", "submit"]


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_forks_amid_messages(run, script, transport):
    n, env = OVER[transport]
    schemes = ["get", "put", "am"] if transport == "shm" else ["am"]
    printed = run.lines(n, script(fork_amid_transfers, 1 << 18, schemes, parts=True), **env)
    assert printed == sorted(f"{scheme} {transport}" for scheme in schemes * n)
