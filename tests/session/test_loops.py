"""Event loops on a session, alone and beside threads."""

from __future__ import annotations

import asyncio
import select

import pytest
from puppets import BOUND, ONLY, answer_in_threads, listen, together

import pscompy
from tests.waiting import once_blocked

LONG = 200.0  # seconds after which thousands of round trips count as hanging


def answer_in_reverse(here):
    got = {tag: here.c.recv(tag=tag) for tag in range(300)}
    for tag in reversed(range(300)):
        here.c.send(got[tag], tag=tag)


def test_gather(link):
    """One loop awaits many requests at once, which complete in another order."""
    count = 300

    async def main():
        receives = [link.c.irecv(tag=tag) for tag in range(count)]
        sends = [link.c.isend(bytes([tag % 256]) * 2000, tag=tag) for tag in range(count)]

        async def one(tag):
            return await receives[tag]

        got = await asyncio.gather(*(one(tag) for tag in range(count)))
        for send in sends:
            await send
        return got

    link.peer.begin(answer_in_reverse)
    got = asyncio.run(asyncio.wait_for(main(), 60))
    assert got == [bytes([tag % 256]) * 2000 for tag in range(count)]
    link.peer.result()


def answer_in_loop(here, count):
    async def answer():
        for _ in range(count):
            await here.c.isend(await here.c.irecv())

    return asyncio.run(asyncio.wait_for(answer(), LONG))


def test_ten_thousand_ping_pongs_of_two_loops(link):
    """A lost wake-up would stop the exchange."""
    count = 10_000

    async def play():
        for i in range(count):
            await link.c.isend(i.to_bytes(4, "little"))
            assert await link.c.irecv() == i.to_bytes(4, "little")

    link.peer.begin(answer_in_loop, count=count)
    asyncio.run(asyncio.wait_for(play(), LONG))
    link.peer.result()


def test_large_ping_pongs_of_two_loops(link):
    async def play():
        for i in range(20):
            await link.c.isend(bytes([i]) * 3_000_000)
            assert await link.c.irecv() == bytes([i]) * 3_000_000

    link.peer.begin(answer_in_loop, count=20)
    asyncio.run(asyncio.wait_for(play(), 100))
    link.peer.result()


def send_20(here):
    for i in range(20):
        here.c.send(bytes([i]))


def test_cancelling_a_task_loses_nothing(link):
    """The receive of a cancelled task is withdrawn, and the other receives get all messages."""

    async def main():
        requests = [link.c.irecv() for _ in range(20)]

        async def wait(request):
            return await request

        tasks = [asyncio.create_task(wait(request)) for request in requests]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks[::2], return_exceptions=True)
        assert [request.cancelled() for request in requests] == [True, False] * 10
        link.peer.begin(send_20)
        got = await asyncio.gather(*tasks[1::2])
        return got + [await link.c.irecv() for _ in range(10)]

    assert asyncio.run(asyncio.wait_for(main(), 60)) == [bytes([i]) for i in range(20)]
    link.peer.result()


def send_late(here):
    here.c.send(b"late")
    here.c.send(b"later")


def test_a_time_limit_in_a_loop_loses_nothing(link):
    async def main():
        request = link.c.irecv()

        async def wait(awaiting):
            return await awaiting

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(asyncio.shield(request)), 0.05)
        link.peer.begin(send_late)
        first = await request
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(link.c.irecv(tag=1)), 0.05)
        return first, await link.c.irecv()

    assert asyncio.run(asyncio.wait_for(main(), 60)) == (b"late", b"later")
    link.peer.result()


def test_a_lost_peer_wakes_a_loop(link):
    async def main():
        once_blocked(link.peer.kill)
        with pytest.raises(pscompy.PeerLost):
            await link.c.irecv()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_closed_connection_wakes_a_loop(link):
    async def main():
        once_blocked(link.c.close)
        with pytest.raises(pscompy.Closed):
            await link.c.irecv()

    asyncio.run(asyncio.wait_for(main(), 60))


def serve_both(here, n):
    for _ in range(n):
        here.c.send(b"l", 1)
        here.c.send(b"t", 2)
        here.c.recv(tag=3)


def test_a_loop_and_a_blocked_thread(link):
    """A coroutine and a thread wait for the same connection; each receives its own messages."""
    count = 500
    link.peer.begin(serve_both, n=count)

    async def main():
        for _ in range(count):
            assert await link.c.irecv(tag=1) == b"l"
            await link.c.isend(b"", tag=3)

    def receive():
        for _ in range(count):
            assert link.c.recv(tag=2, timeout=BOUND) == b"t"

    together(receive, lambda: asyncio.run(asyncio.wait_for(main(), 60)))
    link.peer.result()


def test_two_loops_in_two_threads(link):
    count = 1000
    link.peer.begin(answer_in_threads, count=count, n=2)

    async def play(tag):
        for i in range(count):
            await link.c.isend(i.to_bytes(4, "little"), tag=tag)
            assert await link.c.irecv(tag=tag) == i.to_bytes(4, "little")

    loops = (lambda tag=tag: asyncio.run(asyncio.wait_for(play(tag), LONG)) for tag in range(2))
    together(*loops, seconds=LONG)
    link.peer.result()


def test_accepting_and_opening_in_a_loop(transport, start, open_session):
    session = open_session(**ONLY[transport])
    peer = start(ONLY[transport])
    address = peer(listen)

    async def main():
        async with session.listen("127.0.0.1") as sock:
            peer.begin(
                lambda here, address: [
                    here.session.connect(address).send(bytes([i])) for i in range(10)
                ],
                address=sock.address,
            )
            got = []
            async for c in sock:
                got.append(bytes(await c.irecv()))
                if len(got) == 10:
                    break
            assert sorted(got) == [bytes([i]) for i in range(10)]
        c = session.connect(address)
        await c.iopen()
        assert c.state is pscompy.ConnectionState.UP
        dead = session.connect("psp://127.0.0.1:1/nobody")
        with pytest.raises(pscompy.ConnectError):
            await asyncio.wait_for(dead.iopen(), BOUND)

    asyncio.run(asyncio.wait_for(main(), 60))


def echo_by_select(here):
    def await_(request):
        while not request.test():
            while not here.session.arm():
                here.session.progress()
            if not request.test():
                assert select.select([here.session], [], [], 20)[0], "a wake-up was lost"
            here.session.progress()
        return request.result()

    for _ in range(3000):
        await_(here.c.isend(await_(here.c.irecv())))


def test_a_loop_of_ones_own(link):
    """Another event loop would use fileno, arm and progress like this source does."""

    link.peer.begin(echo_by_select)
    for i in range(2900):
        link.c.send(i.to_bytes(4, "little"))
        assert link.c.recv(timeout=BOUND) == i.to_bytes(4, "little")
    for i in range(100):
        link.c.send(bytes([i]) * 400_000)
        assert link.c.recv(timeout=BOUND) == bytes([i]) * 400_000
    link.peer.result()
