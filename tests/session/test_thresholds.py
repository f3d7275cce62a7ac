"""Thresholds follow from estimates, which are measured when a session opens, and corrected by the
times of messages. Which messages take receives does not depend on them."""

from __future__ import annotations

import numpy as np
import pytest
from puppets import BOUND, ONLY

from pscompy.control.selection import CAP_GET, EAGER_LIMIT
from tests.waiting import expect_soon

SHM = ONLY["shm"]


@pytest.fixture
def pair(open_session):
    """A function that connects two sessions of this process over shm, with estimates that `guess`
    returns, by default that copies take no time. Messages that take a receive are not timed, so by
    default none does."""

    def connect(guess=immediate, **config):
        config = {"TUPLEQ": 0, **config}
        sessions = [open_session(**SHM, **config) for _ in "ab"]
        for session in sessions:
            session._core.transports.options[:] = map(guess, session._core.transports.options)
        with sessions[1].listen("127.0.0.1") as sock:
            c = sessions[0].connect(sock.address)
            c.send(b"hello")
            d = sock.accept(timeout=BOUND)
        assert d.recv(timeout=BOUND) == b"hello"
        if not c.explain().estimates.caps & CAP_GET:
            pytest.skip("cross-memory attach is refused here, so there is one protocol only")
        return c, d

    return connect


def immediate(option):
    if option.estimates is None:
        return option
    endless = option.estimates._replace(bandwidth=1e15, copy_bandwidth=1e15, reg_ns=0)
    return option._replace(estimates=endless)


def slow(option):
    if option.estimates is None:
        return option
    return option._replace(estimates=option.estimates._replace(copy_bandwidth=1e8))


def exchange(c, d):
    """Send a message of 64 KiB each way; one thread drives both sessions."""
    data, room = np.ones(1 << 16, np.uint8), np.zeros(1 << 16, np.uint8)
    for source, target in ((c, d), (d, c)):
        send(source, data, target, room)
        assert room.all()
        room[:] = 0


def send(source, data, target, room):
    receive, sent = target.irecv(room), source.isend(data)
    while not all([receive.test(), sent.test()]):
        pass


def source_of(c, name):
    return c.explain().as_dict()["estimates"][name][1]


def estimates_of(session):
    return next(it.estimates for it in session._core.transports.options if it.name == "shm")


def test_copies_are_measured_when_the_session_opens(open_session):
    estimates = estimates_of(open_session(**SHM))
    sources = {name: source for name, (_, source) in estimates.sources().items()}
    assert sources["latency_ns"] == "declared"
    assert sources["copy_bandwidth"] == "measured at open"


def test_a_process_measures_its_copies_once(open_session):
    first, second = (estimates_of(open_session(**SHM)) for _ in range(2))
    assert first == second


def test_a_threshold_is_corrected_by_the_times_of_messages(pair):
    c, d = pair()
    assert c.explain().eager_max == EAGER_LIMIT

    def corrected():
        exchange(c, d)
        return all(source_of(it, "copy_bandwidth") == "corrected live" for it in (c, d))

    expect_soon(corrected, "a correction on both sides", BOUND)
    assert c.explain().eager_max < EAGER_LIMIT
    assert "copy_bandwidth" in str(c.explain())


def test_messages_are_copied_now_and_then_so_that_a_threshold_can_rise(pair):
    c, d = pair(slow)
    before = c.explain().eager_max
    assert before < 1 << 16, "no message of the exchange is eager"

    def risen():
        exchange(c, d)
        return all(it.explain().eager_max > before for it in (c, d))

    expect_soon(risen, "a threshold that rises on both sides", BOUND)
    assert source_of(c, "copy_bandwidth") == "corrected live"


def placed(c, d, nbytes, count=15):
    """Send messages, each after its receive was posted; returns how many were placed in it."""
    before = c.stats["tuple_placed"]
    data = np.ones(nbytes, np.uint8)
    for _ in range(count):
        send(c, data, d, np.empty_like(data))
    return c.stats["tuple_placed"] - before


def as_measured(option):
    return option


@pytest.mark.parametrize("trial", [immediate, slow, as_measured])
@pytest.mark.parametrize(
    ("config", "least"),
    [({}, 128 << 10), ({"TUPLEQ": 1}, 8 << 10), ({"TUPLEQ_MIN": "20k"}, 20 << 10)],
    ids=["auto", "1", "a length that was set"],
)
def test_which_messages_take_receives_does_not_depend_on_the_trial(pair, trial, config, least):
    c, d = pair(trial, **{"TUPLEQ": "auto", **config})
    assert placed(c, d, least) == 15
    assert placed(c, d, least - 1) == 0


def test_a_threshold_that_was_set_stays(pair):
    c, d = pair(SHM_RENDEZVOUS="100k")
    for _ in range(200):
        exchange(c, d)
    assert c.explain().eager_max == 102_399


@pytest.mark.parametrize("config", [{"SHM_RENDEZVOUS": "8k"}, {"RNDV_SCHEME": "get"}])
def test_no_message_is_copied_beyond_what_was_set(pair, config):
    c, d = pair(slow, **config)
    before = c.stats["eager_bcopy"]
    for _ in range(20):
        exchange(c, d)
    assert c.stats["eager_bcopy"] == before


@pytest.mark.parametrize(
    ("config", "shown_from"),
    [
        ({"TUPLEQ": "auto"}, 128 << 10),
        ({"TUPLEQ": "auto", "SHM_RENDEZVOUS": "20k"}, 128 << 10),
        ({"TUPLEQ": "auto", "TUPLEQ_MIN": "10k"}, 10 << 10),
        ({"TUPLEQ": 0, "TUPLEQ_MIN": "10k"}, None),
        ({"TUPLEQ": 1}, 8 << 10),
        ({"TUPLEQ": 1, "TUPLEQ_MIN": "10k"}, 10 << 10),
        ({"TUPLEQ": 1, "RNDV_SCHEME": "get"}, None),
    ],
)
def test_the_explanation_says_whether_receives_are_shown(pair, config, shown_from):
    c, _ = pair(**config)
    report = c.explain()
    assert report.as_dict()["shown_from"] == shown_from
    which = f"those of at least {shown_from} bytes" if shown_from else "none"
    assert f"arrive while their receiver computes: {which}" in str(report)
    assert "PSP_TUPLEQ" in report.variables()
