"""With PSP_PROGRESS_THREAD messages move while the program makes no call; all else works as
without it.
"""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from puppets import BOUND, ONLY, check_echo

import pscompy
from tests.waiting import expect_soon, idles, own_use

BIG = 3_000_000  # large enough for rendezvous, which needs progress on both sides
SECONDS = 50  # how long a peer computes at most

COMPUTE = f"""
began = time.monotonic()
while not (seen := {{done}}) and time.monotonic() < began + {SECONDS}:
    sum(range(1000))
seen
"""


@pytest.fixture
def link(connect, transport):
    return connect(transport, PROGRESS_THREAD=1)


def hold_the_interpreter(link: object) -> None:
    """Hold the GIL in the peer by a call of C that blocks on a pipe, until the test writes to
    it."""
    link.peer.begin("ctypes.PyDLL(None).read(gate, ctypes.create_string_buffer(1), 1)")


# ---- no calls of the program --------------------------------------------------------------------


def test_a_message_arrives_while_its_receiver_computes(link):
    """The receiver makes no call; it sees its buffer change."""
    link.peer(f"room = bytearray({BIG}); receive = c.irecv(room)")
    link.peer.begin(COMPUTE.format(done="room[-1] == 7"))
    link.c.send(bytes([7]) * BIG, timeout=BOUND)
    assert link.peer.result()
    assert link.peer("receive.wait(60), bytes(room) == bytes([7]) * len(room)")[1]


def test_a_message_leaves_while_its_sender_computes(link):
    link.peer(f"room = bytearray(1); receive = c.irecv(room, 1); sent = c.isend(bytes({BIG}), 2)")
    link.peer.begin(COMPUTE.format(done="room[0] == 7"))
    assert link.c.recv(tag=2, timeout=BOUND) == bytes(BIG)
    link.c.send(bytes([7]), 1)
    assert link.peer.result()
    link.peer("sent.wait(60)")


def test_messages_move_while_a_peer_holds_the_interpreter(link):
    """The peer releases the GIL when a byte arrives in the pipe `gate`, after all messages have
    moved."""
    link.peer("import ctypes; gate, key = os.pipe()")
    link.peer(
        f"room = bytearray({BIG}); receive = c.irecv(room, 1); sent = c.isend(bytes({BIG}), 2)"
    )
    path = f"/proc/{link.peer.pid}/fd/{link.peer('key')}"
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
    assert link.peer("receive.wait(60); sent.wait(60); bytes(room) == bytes([7]) * len(room)")


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
    link.peer.begin("for _ in range(200): c.send(c.recv())")

    async def main() -> None:
        for i in range(200):
            size = BIG if i % 50 == 49 else 8
            await link.c.isend(bytes([i]) * size)
            if i % 10 == 0:
                await asyncio.sleep(0.001)
            assert await link.c.irecv() == bytes([i]) * size

    asyncio.run(asyncio.wait_for(main(), BOUND))
    link.peer.result()


def test_closing(link):
    """All messages sent before the close arrive, and both sides end."""
    link.peer(f"sent = [c.isend(bytes({BIG})) for _ in range(4)]")
    link.peer.begin("session.close()")
    for _ in range(4):
        assert link.c.recv(timeout=BOUND) == bytes(BIG)
    with pytest.raises(pscompy.Closed):
        link.c.recv(timeout=BOUND)
    link.session.close()
    link.peer.result()
    assert link.peer.finish() == 0


def test_a_child_of_fork(link):
    """The child has neither the thread nor the session, and its exit disturbs neither."""
    code = link.peer(
        """
        pid = os.fork()
        if pid == 0:
            try:
                c.send(b"x")
            except pscompy.Closed:
                session.close()
                os._exit(5)
            os._exit(1)
        os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        """
    )
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
