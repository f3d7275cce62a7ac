"""Long messages over tcp whose receives were posted before: they are sent at once, without an
announcement and its answer, and a progress thread of the receiver moves them while it computes.
"""

from __future__ import annotations

import random
import signal
import time

import pytest
from puppets import BOUND, ONLY, attach

import pscompy

MIB = 1 << 20
SIZES = [192 << 10, MIB, 4 * MIB]  # not eager
TRIALS = 15
ANSWERS = ("rndv_rts", "rndv_am", "rndv_fin", "fragments")  # rndv_am: answers (RTR) that came


def told(connection):
    """The number of receives claimed, and of the messages that a rendezvous takes."""
    return connection.stats["tuple_placed"], *(connection.stats[name] for name in ANSWERS)


def send_when_told(here, nbytes):
    """The empty message is behind the one that tells of the receive."""
    here.c.recv(timeout=BOUND)
    before = told(here.c)
    here.c.send(bytes([7]) * nbytes)
    return tuple(now - then for now, then in zip(told(here.c), before, strict=True))


def whole(memory):
    return memory.count(7) == len(memory)


@pytest.mark.parametrize("nbytes", SIZES)
def test_expected_messages_take_no_answer(connect, nbytes):
    link = connect("tcp", TUPLEQ=1)
    memory = bytearray(nbytes)
    for n in range(TRIALS):
        memory[:] = bytes(nbytes)
        receive = link.c.irecv(memory)
        link.peer.begin(send_when_told, nbytes)
        link.c.send(b"")
        receive.wait(BOUND)
        assert link.peer.result() == (1, 0, 0, 0, 0)
        assert whole(memory)
        assert link.c.stats["tuple_taken"] == n + 1


def test_a_long_message_is_announced(connect):
    link = connect("tcp", TUPLEQ=1)
    memory = bytearray(5 * MIB)
    receive = link.c.irecv(memory)
    link.peer.begin(send_when_told, len(memory))
    link.c.send(b"")
    receive.wait(BOUND)
    assert link.peer.result()[:2] == (0, 1)
    assert whole(memory)


def compute_until_whole(memory):
    """Without a call of the library."""
    end = time.monotonic() + BOUND
    while not whole(memory) and time.monotonic() < end:
        pass


@pytest.mark.parametrize("nbytes", SIZES)
def test_the_thread_receives_while_the_program_computes(connect, nbytes):
    link = connect("tcp", TUPLEQ=1, PROGRESS_THREAD=1)
    memory = bytearray(nbytes)
    for n in range(TRIALS):
        memory[:] = bytes(nbytes)
        receive = link.c.irecv(memory)
        link.peer.begin(send_when_told, nbytes)
        link.c.send(b"")
        compute_until_whole(memory)
        assert whole(memory)
        assert link.peer.result() == (1, 0, 0, 0, 0)
        receive.wait(BOUND)
        assert link.c.stats["tuple_taken"] == n + 1


def test_a_peer_without(start, open_session):
    """It is told of receives, and announces its messages."""
    session = open_session(**ONLY["tcp"], TUPLEQ=1)
    link = attach(session, session.listen("127.0.0.1"), start({**ONLY["tcp"], "TUPLEQ": 0}))
    memory = bytearray(MIB)
    for _ in range(TRIALS):
        memory[:] = bytes(MIB)
        receive = link.c.irecv(memory)
        link.peer.begin(send_when_told, MIB)
        link.c.send(b"")
        receive.wait(BOUND)
        assert link.peer.result()[:2] == (0, 1)
        assert whole(memory)
    assert 0 < link.c.stats["tuple_exposed"] <= TRIALS
    assert link.c.stats["tuple_taken"] == 0


def begin_when_told(here, nbytes):
    here.c.recv(timeout=BOUND)
    here.request = here.c.isend(bytes([7]) * nbytes)
    return here.c.stats["tuple_placed"]


def test_a_cancel_while_the_message_is_under_way(connect):
    """The memory is the program's at once, and the message waits for the next receive."""
    link = connect("tcp", TUPLEQ=1)
    memory = bytearray(MIB)
    receive = link.c.irecv(memory)
    link.c.send(b"")
    assert link.peer(begin_when_told, MIB) == 1
    assert receive.cancel()
    memory[:] = bytes(MIB)
    assert whole(link.c.recv(timeout=BOUND))
    assert memory.count(0) == MIB
    link.peer(lambda here: here.request.wait())
    assert link.c.stats["tuple_taken"] == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("moment", range(4))
def test_the_sender_ends_or_stops(connect, number, moment):
    """At any moment: the receive ends, or its message is whole."""
    link = connect("tcp", TUPLEQ=1)
    memory = bytearray(4 * MIB)
    receive = link.c.irecv(memory)
    link.peer.begin(send_when_told, len(memory))
    link.c.send(b"")
    end = time.monotonic() + random.random() * 0.01 * moment
    while time.monotonic() < end:
        link.session.progress()
    link.peer.send_signal(number)
    try:
        receive.wait(1 if number == signal.SIGSTOP else BOUND)
    except pscompy.Timeout:
        link.peer.send_signal(signal.SIGCONT)
        receive.wait(BOUND)
    except pscompy.PeerLost:
        memory[:] = bytes(len(memory))
        link.session.progress()
        assert memory.count(0) == len(memory), "a late copy"
        memory.append(0)  # nothing uses the buffer any more
        return
    assert whole(memory)
    link.peer.send_signal(signal.SIGCONT)
