"""Long messages over shm into receives that their sender sees: the bytes are copied by a side that
is inside the library, although the other one is not, and no announcement is sent.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time

import pytest
from puppets import BOUND

import pscompy
from tests.waiting import expect_soon

MIB = 1 << 20
SIZES = [1 << n for n in range(13, 23)]  # 8 KiB to 4 MiB
TRIALS = 15
OTHERWISE = ("rndv_rts", "rndv_fin", "eager_short", "eager_bcopy", "credit_messages")


@pytest.fixture
def link(connect):
    return connect("shm", TUPLEQ=1)


def counted(connection):
    """The number of messages and records that placing a message saves."""
    return sum(connection.stats[name] for name in OTHERWISE)


def send(here, nbytes):
    """Returns the number of messages that took a receive, and of records sent otherwise."""
    placed, others = here.c.stats["tuple_placed"], counted(here.c)
    here.c.send(bytes([7]) * nbytes)
    return here.c.stats["tuple_placed"] - placed, counted(here.c) - others


def compute():
    """For some milliseconds, in C, without a call of the library."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10_000)


def begin_to_send(here, nbytes):
    here.request = here.c.isend(bytes([7]) * nbytes)


def whole(memory):
    return memory.count(7) == len(memory)


@pytest.mark.parametrize("nbytes", SIZES)
def test_the_receiver_is_away(link, nbytes):
    memory = bytearray(nbytes)
    for n in range(TRIALS):
        memory[:] = bytes(nbytes)
        receive = link.c.irecv(memory)
        others = counted(link.c)
        link.peer.begin(send, nbytes)
        compute()
        assert link.peer.result() == (1, 0)
        assert whole(memory)
        receive.wait(BOUND)
        assert (link.c.stats["tuple_taken"], counted(link.c)) == (n + 1, others)


@pytest.mark.parametrize("nbytes", [it for it in SIZES if it >= 64 << 10])
def test_the_sender_is_away(link, nbytes):
    memory = bytearray(nbytes)
    for n in range(TRIALS):
        memory[:] = bytes(nbytes)
        receive = link.c.irecv(memory)
        link.peer(begin_to_send, nbytes)
        receive.wait(BOUND)
        assert whole(memory)
        assert link.c.stats["tuple_taken"] == n + 1
        link.peer(lambda here: here.request.wait())


def show_and_fork(here, nbytes):
    show(here, nbytes)
    waits, here.go = os.pipe()
    here.child = os.fork()
    if here.child == 0:
        os.close(here.go)
        os.read(waits, 1)
        os._exit(here.memory.count(0) != nbytes)
    os.close(waits)


def after_the_fork(here):
    here.request.wait()
    os.close(here.go)
    return here.memory.count(7), os.waitpid(here.child, 0)[1]


def test_a_child_is_not_written_to(link):
    """A receive that was shown before a fork is the parent's."""
    link.peer(show_and_fork, MIB)
    link.c.send(bytes([7]) * MIB)
    assert link.c.stats["tuple_placed"] == 1
    assert link.peer(after_the_fork) == (MIB, 0)


def send_and_close(here, nbytes):
    here.c.send(bytes([7]) * nbytes)
    here.c.close()


@pytest.mark.parametrize("closes", [True, False], ids=["closes", "is_killed"])
def test_the_sender_has_gone_since(link, closes):
    """A message that was sent completely is received, although its sender has ended since."""
    memory = bytearray(MIB)
    request = link.c.irecv(memory)
    if closes:
        link.peer.begin(send_and_close, MIB)
        expect_soon(lambda: whole(memory), "the message")
    else:
        link.peer(send, MIB)
        link.peer.kill()
    assert request.wait(BOUND).nbytes == MIB
    assert whole(memory)


def test_the_receiver_has_gone_since(link):
    link.peer(show, MIB)
    request = link.c.isend(bytes([7]) * MIB)
    assert link.peer(lambda here: here.request.wait().nbytes) == MIB
    link.peer.kill()
    request.wait(BOUND)
    assert link.c.stats["tuple_placed"] == 1


def test_without_cross_memory_attach(connect):
    link = connect("shm", TUPLEQ=1, SHM_CMA=0)
    memory = bytearray(MIB)
    receive = link.c.irecv(memory)
    link.peer.begin(send, MIB)
    receive.wait(BOUND)
    assert whole(memory)
    assert link.c.stats["tuple_exposed"] == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("moment", range(4))
def test_the_sender_ends_or_stops(link, number, moment):
    """At any moment: the receive ends, or its message is whole."""
    memory = bytearray(64 * MIB)
    receive = link.c.irecv(memory)
    link.peer.begin(send, len(memory))
    end = time.monotonic() + random.random() * 0.02
    while time.monotonic() < end:
        link.session.progress()
    link.peer.send_signal(number)
    try:
        receive.wait(1 if number == signal.SIGSTOP else BOUND)
    except pscompy.Timeout:  # it is stopped in the middle of a piece, or before its send
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


def test_the_receiver_is_killed(link):
    link.peer(show, 64 * MIB)
    send_request = link.c.isend(bytes(64 * MIB))
    link.session.progress()
    link.peer.kill()
    with pytest.raises(pscompy.PeerLost):
        send_request.wait(BOUND)


def show(here, nbytes):
    here.memory = bytearray(nbytes)
    here.request = here.c.irecv(here.memory)
