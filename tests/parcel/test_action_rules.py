"""Which functions a peer may call, and which answers it may give."""

from __future__ import annotations

import os

import helpers
import numpy as np
import pytest
from actions import ended

import pscompy


@pytest.fixture
def link(serving, transport):
    return serving(transport)


def test_functions_that_are_not_registered(link):
    error = ended(link.c.submit(helpers.not_registered))
    assert type(error) is pscompy.Unsupported
    assert "PSP_PARCEL_ACTIONS=any" in str(error)


def test_any_function(serving, transport):
    link = serving(transport, PARCEL_ACTIONS="any")
    assert link.c.call(helpers.not_registered) == "called"
    assert link.c.call(divmod, 7, 2) == (3, 1)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_restricted_session_runs_actions_and_nothing_else(serving, transport, tmp_path):
    link = serving(transport, PARCEL_UNPICKLE="restricted", PARCEL_ACTIONS="any")
    made = link.c.call(helpers.double, np.arange(5000.0))
    assert made[2] == 4
    for args in ((helpers.echo, Evil(str(tmp_path / "evil"))), (os.mkdir, str(tmp_path / "evil"))):
        error = ended(link.c.submit(*args))
        assert type(error) in (pscompy.ParcelError, pscompy.RemoteError)
        assert "PSP_PARCEL_ALLOW" in str(error)
    assert not list(tmp_path.iterdir())


def register_evil(here, folder):
    class Evil(Exception):
        def __reduce__(self):
            return os.mkdir, (folder,)

    def evil(failing):
        if failing:
            raise Evil
        return Evil()

    pscompy.action(evil, name="evil")


def test_a_malicious_answer(serving, transport, tmp_path):
    """The peer answers with a pickle that would run code in this process."""
    link = serving(transport, PARCEL_UNPICKLE="restricted")
    link.peer(register_evil, str(tmp_path / "evil"))
    pscompy.action(_evil, name="evil")
    assert type(ended(link.c.submit(_evil, False))) is pscompy.ParcelError
    assert type(ended(link.c.submit(_evil, True))) is pscompy.RemoteError
    assert not list(tmp_path.iterdir())


def _evil(failing):
    raise AssertionError("this is the other process's to run")


def test_two_functions_of_one_name():
    with pytest.raises(ValueError, match="already"):
        pscompy.action(lambda: 1, name="where it runs")
    assert pscompy.action(helpers.echo) is helpers.echo  # registering a function twice is allowed
