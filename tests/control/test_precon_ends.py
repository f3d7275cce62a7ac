"""How precons and listeners end that no session would end soon."""

from __future__ import annotations

import socket

import pytest

from pscompy.config.config import Config
from pscompy.config.variables import VARIABLES
from pscompy.control.event_loop import ControlThread
from pscompy.control.listening import Listening
from pscompy.control.precon import Precon
from pscompy.control.precon_options import PreconOptions
from pscompy.errors import ConnectError
from tests.control.precon_pairs import Pair
from tests.waiting import expect_soon


@pytest.fixture
def thread():
    made = ControlThread("test")
    made.start()
    yield made
    assert made.stop(60)


class Owner:
    """Keeps the errors of a precon."""

    def __init__(self):
        self.errors = []

    def on_precon_event(self, precon, event):
        pass

    def on_precon_error(self, precon, error):
        self.errors.append(error)


def broken() -> str:
    raise ZeroDivisionError("a mistake")


def test_a_mistake_in_the_handshake_ends_its_precon(thread, caplog):
    """The precon tells its owner, and its descriptor is not watched for ever."""
    pair, owner = Pair(), Owner()
    pair.to_trial()
    pair.report(pair.acceptor)
    pair.acceptor.output()
    pair.acceptor.check_lanes = broken
    pair.report(pair.connector)
    here, there = socket.socketpair()
    here.setblocking(False)
    thread.call(Precon, thread, here, pair.acceptor, owner)
    with there:
        there.send(pair.connector.output())
        expect_soon(lambda: owner.errors)
    (error,) = owner.errors
    assert isinstance(error, ConnectError)
    assert "a mistake" in str(error)
    expect_soon(lambda: here.fileno() < 0)
    assert "is broken off" in caplog.text
    caplog.clear()  # conftest.py lets no test log an exception


class Locations:
    """A relay that has one place, as long as it is not stopped."""

    def __init__(self):
        self.open = set()

    def listen(self, accept):
        self.open.add("here")
        return "here"

    def stop(self, place):
        self.open.discard(place)


def test_a_listener_that_is_opened_while_all_are_closed_leaves_no_place(thread):
    relay = Locations()
    options = PreconOptions.of(Config({"": VARIABLES}))
    listening = Listening(thread, {"gateway": relay}, options, "", lambda *_: None)
    thread.run(listening.close_all)
    listener = listening.open("here", "127.0.0.1", 0, lambda record: None)
    expect_soon(lambda: listener.socket.fileno() < 0 and not relay.open)
