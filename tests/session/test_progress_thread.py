"""With PSP_PROGRESS_THREAD messages move though the program stays away from pscompy; and whatever
else a session can do goes on as ever."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from puppets import BOUND, ONLY, check_echo

import pscompy
from tests.waiting import expect_soon, idles, own_use

BIG = 3_000_000  # a rendezvous: the other side has to do something for it
SECONDS = 50  # that a peer computes at most

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
    """Until the test lets go: a call of C that keeps the GIL blocks on a pipe."""
    link.peer.begin("ctypes.PyDLL(None).read(gate, ctypes.create_string_buffer(1), 1)")


# ---- nobody calls --------------------------------------------------------------------------------


def test_a_message_arrives_while_its_receiver_computes(link):
    """It never calls pscompy: the memory changes under its eyes."""
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
    """The peer lets go when a byte comes through the gate, which is after all have moved."""
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


# ---- what else there is --------------------------------------------------------------------------


def test_it_sleeps(link):
    """Less than 2 % of a core shortly after traffic, while a call waits and while none does."""
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
    """A loop sleeps on what the thread finishes."""
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
    """What was sent before it arrives, and both sides end."""
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
    """It has neither the thread nor the session, and ends without harm to either."""
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
    """The progress thread is none of Python's: the system lists it."""
    before = set(os.listdir("/proc/self/task"))
    for _ in range(20):
        open_session(**ONLY[transport], PROGRESS_THREAD=1).close()
    expect_soon(lambda: set(os.listdir("/proc/self/task")) <= before)
