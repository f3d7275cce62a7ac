"""With PSP_PROGRESS_THREAD messages move while the program makes no call; all else works as
without it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time

import pytest
from puppets import BOUND, ONLY, check_echo, echo

import pscompy
from tests.waiting import expect_soon, idles, own_use

BIG = 3_000_000  # large enough for rendezvous, which needs progress on both sides
SECONDS = 50  # how long a peer computes at most


def compute(here, last):
    """Compute until the last byte of here.room is `last`; returns whether it is."""
    began = time.monotonic()
    while not (seen := here.room[-1] == last) and time.monotonic() < began + SECONDS:
        sum(range(1000))
    return seen


@pytest.fixture
def link(connect, transport):
    return connect(transport, PROGRESS_THREAD=1, TUPLEQ=0)


def hold_the_interpreter(link: object) -> None:
    """Hold the GIL in the peer by a call of C that blocks on a pipe, until the test writes to
    it."""
    link.peer.begin(
        lambda here: ctypes.PyDLL(None).read(here.gate, ctypes.create_string_buffer(1), 1)
    )


# ---- no calls of the program --------------------------------------------------------------------


def post_receive(here):
    here.room = bytearray(BIG)
    here.receive = here.c.irecv(here.room)


def received(here):
    here.receive.wait(60)
    return bytes(here.room) == bytes([7]) * len(here.room)


def test_a_message_arrives_while_its_receiver_computes(link):
    """The receiver makes no call; it sees its buffer change."""
    link.peer(post_receive)
    link.peer.begin(compute, 7)
    link.c.send(bytes([7]) * BIG, timeout=BOUND)
    assert link.peer.result()
    assert link.peer(received)


def compute_briefly(here):
    end = time.monotonic() + 0.2
    while here.room[-1] == 0 and time.monotonic() < end:
        sum(range(1000))
    return here.room[-1]


def test_a_patient_thread(connect):
    """The thread lets the program compute for as long as PSP_PROGRESS_PATIENCE_US says."""
    link = connect("tcp", PROGRESS_THREAD=1, PROGRESS_PATIENCE_US=60_000_000)
    link.peer(post_receive)
    request = link.c.isend(bytes([7]) * BIG)
    assert link.peer(compute_briefly) == 0
    link.peer.begin(received)
    request.wait(BOUND)
    assert link.peer.result()


def post_send(here):
    here.room = bytearray(1)
    here.receive = here.c.irecv(here.room, 1)
    here.sent = here.c.isend(bytes(BIG), 2)


def test_a_message_leaves_while_its_sender_computes(link):
    link.peer(post_send)
    link.peer.begin(compute, 7)
    assert link.c.recv(tag=2, timeout=BOUND) == bytes(BIG)
    link.c.send(bytes([7]), 1)
    assert link.peer.result()
    link.peer(lambda here: here.sent.wait(60))


def open_gate(here):
    here.gate, here.key = os.pipe()


def post_both(here):
    here.room = bytearray(BIG)
    here.receive = here.c.irecv(here.room, 1)
    here.sent = here.c.isend(bytes(BIG), 2)


def test_messages_move_while_a_peer_holds_the_interpreter(link):
    """The peer releases the GIL when a byte arrives in the pipe `gate`, after all messages have
    moved."""
    link.peer(open_gate)
    link.peer(post_both)
    path = f"/proc/{link.peer.pid}/fd/{link.peer(lambda here: here.key)}"
    hold_the_interpreter(link)
    try:
        link.c.send(bytes([7]) * BIG, 1, timeout=BOUND)
        assert link.c.recv(tag=2, timeout=BOUND) == bytes(BIG)
        with pytest.raises(AssertionError, match="hangs"):
            link.peer.result(timeout=0)
    finally:
        with open(path, "wb") as key:
            key.write(b"x")
    assert link.peer.result() == 1
    assert link.peer(lambda here: here.sent.wait(60) or received(here))


# ---- everything else ----------------------------------------------------------------------------


def test_it_sleeps(link):
    """The thread uses less than 2 % of a core shortly after traffic, with and without a waiting
    call."""
    for _ in range(100):
        check_echo(link)

    def while_a_call_waits():
        before, begun = time.process_time(), time.monotonic()
        with pytest.raises(pscompy.Timeout):
            link.c.recv(timeout=1)
        return (time.process_time() - before) / (time.monotonic() - begun)

    assert idles(while_a_call_waits)
    assert idles(own_use)


def test_awaiting(link):
    """An event loop sleeps until the progress thread has completed its request."""
    link.peer.begin(echo, 200)

    async def main() -> None:
        for i in range(200):
            size = BIG if i % 50 == 49 else 8
            await link.c.isend(bytes([i]) * size)
            if i % 10 == 0:
                await asyncio.sleep(0.001)
            assert await link.c.irecv() == bytes([i]) * size

    asyncio.run(asyncio.wait_for(main(), BOUND))
    link.peer.result()


def post_sends(here):
    here.sent = [here.c.isend(bytes(BIG)) for _ in range(4)]


def test_closing(link):
    """All messages sent before the close arrive, and both sides end."""
    link.peer(post_sends)
    link.peer.begin(lambda here: here.session.close())
    for _ in range(4):
        assert link.c.recv(timeout=BOUND) == bytes(BIG)
    with pytest.raises(pscompy.Closed):
        link.c.recv(timeout=BOUND)
    link.session.close()
    link.peer.result()
    assert link.peer.finish() == 0


def use_in_child(here):
    pid = os.fork()
    if pid == 0:
        try:
            here.c.send(b"x")
        except pscompy.Closed:
            here.session.close()
            os._exit(5)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_of_fork(link):
    """The child has neither the thread nor the session, and its exit disturbs neither."""
    code = link.peer(use_in_child)
    assert code == 5
    test_a_message_arrives_while_its_receiver_computes(link)


def test_a_peer_dies(link):
    receive = link.c.irecv()
    link.peer.kill()
    with pytest.raises(pscompy.PscomError):
        receive.wait(BOUND)


def test_many_sessions_come_and_go(open_session, transport):
    """The progress thread is not a Python thread, so it is looked up in /proc."""
    before = set(os.listdir("/proc/self/task"))
    for _ in range(20):
        open_session(**ONLY[transport], PROGRESS_THREAD=1).close()
    expect_soon(lambda: set(os.listdir("/proc/self/task")) <= before)
