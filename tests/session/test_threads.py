"""Several threads and event loops on one session: no message is lost, duplicated or delayed."""

from __future__ import annotations

import asyncio
import threading

import pytest
from puppets import BOUND, ONLY, check_echo

import pscompy

THREADS = 4


def together(*works):
    """Run each function in a thread of its own; the first error is raised here."""
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.fixture
def link(connect, transport):
    return connect(transport)


ANSWER = """
def answer(tag):
    for _ in range(count):
        c.send(c.recv(tag=tag), tag=tag)
threads = [threading.Thread(target=answer, args=(tag,)) for tag in range(n)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@pytest.mark.parametrize("nbytes", [8, 20_000, 500_000])
def test_four_threads_on_one_connection(link, nbytes):
    """Each of four threads uses a tag of its own, against four threads of the peer."""
    count = {8: 2000, 20_000: 500, 500_000: 60}[nbytes]
    link.peer.begin(ANSWER, count=count, n=THREADS)

    def exchange(tag):
        for i in range(count):
            data = (i * THREADS + tag).to_bytes(8, "little") * (nbytes // 8)
            link.c.send(data, tag=tag)
            assert link.c.recv(tag=tag, timeout=BOUND) == data

    together(*(lambda tag=tag: exchange(tag) for tag in range(THREADS)))
    link.peer.result()


def test_one_sends_while_another_is_blocked_in_a_receive(link):
    """One thread sends on a connection while another waits on it for the peer's last message."""
    count = 2000
    link.peer.begin(
        "n = sum(len(c.recv(tag=1)) for _ in range(count)); c.send(b'end', tag=2); n", count=count
    )
    got = []

    def receive():
        got.append(link.c.recv(tag=2, timeout=BOUND))

    def send():
        for _ in range(count):
            link.c.send(b"12345678", tag=1)

    together(receive, send)
    assert got == [b"end"]
    assert link.peer.result() == 8 * count


def test_receivers_share_a_stream(link):
    """Four threads receive from one connection: every message once, and each thread's in order."""
    count = 4000
    link.peer.begin("for i in range(count): c.send(i.to_bytes(4, 'little'))", count=count)
    got = [[] for _ in range(THREADS)]

    def receive(mine):
        for _ in range(count // THREADS):
            mine.append(int.from_bytes(link.c.recv(timeout=BOUND), "little"))

    together(*(lambda mine=mine: receive(mine) for mine in got))
    assert sorted(i for mine in got for i in mine) == list(range(count))
    assert all(mine == sorted(mine) for mine in got)
    link.peer.result()


def test_senders_share_a_connection(link):
    count = 3000
    link.peer.begin("[tuple(c.recv()) for _ in range(4 * count)]", count=count)

    def send(thread):
        for i in range(count):
            link.c.send(bytes([thread, i % 256, i // 256]))

    together(*(lambda thread=thread: send(thread) for thread in range(THREADS)))
    got = link.peer.result()
    for thread in range(THREADS):
        assert [m for m in got if m[0] == thread] == [
            (thread, i % 256, i // 256) for i in range(count)
        ]


def test_threads_on_different_connections(link, join):
    links = [link, *(join(link) for _ in range(3))]
    for each in links:
        each.peer.begin("for _ in range(1000): c.send(c.recv())")

    def exchange(each):
        for i in range(1000):
            each.c.send(i.to_bytes(4, "little"))
            assert each.c.recv(timeout=BOUND) == i.to_bytes(4, "little")

    together(*(lambda each=each: exchange(each) for each in links))


def test_waiting_for_each_others_requests(link):
    """One thread posts the requests, all threads wait for them."""
    requests = [link.c.irecv() for _ in range(200)]
    link.peer.begin("for i in range(200): c.send(bytes([i]))")
    together(
        *(lambda: [request.wait(BOUND) for request in requests] for _ in range(THREADS - 1)),
        lambda: pscompy.wait_all(requests, timeout=BOUND),
    )
    assert [request.result() for request in requests] == [bytes([i]) for i in range(200)]
    link.peer.result()


def test_one_cancels_while_another_waits(link):
    for _ in range(50):
        request = link.c.irecv(tag=77)

        def wait(request=request):
            with pytest.raises(pscompy.Cancelled):
                request.wait(BOUND)

        together(wait, request.cancel)
    check_echo(link)


def test_messages_to_handlers_from_all_threads(link):
    """Active messages are delivered once each, by whichever thread makes progress."""
    seen = []
    link.session.on_message(3, lambda c, header, payload: seen.append(bytes(header)))
    link.peer.begin("for i in range(2000): c.am_send(3, i.to_bytes(4, 'little'), b'')\nc.send(b'')")
    together(lambda: link.c.recv(timeout=BOUND), *[lambda: link.c.iprobe(tag=5)] * 3)
    link.peer.result()
    # the last messages may have arrived together with the one that recv returned
    while len(seen) < 2000:
        link.session.progress()
    assert sorted(seen) == sorted(i.to_bytes(4, "little") for i in range(2000))


# ---- event loops ----


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

    link.peer.begin(
        """
        got = {tag: c.recv(tag=tag) for tag in range(300)}
        for tag in reversed(range(300)): c.send(got[tag], tag=tag)
        """
    )
    got = asyncio.run(asyncio.wait_for(main(), 60))
    assert got == [bytes([tag % 256]) * 2000 for tag in range(count)]
    link.peer.result()


LOOP_ANSWERS = """
import asyncio
async def answer():
    for _ in range(count):
        await c.isend(await c.irecv())
asyncio.run(asyncio.wait_for(answer(), 100))
"""


def test_ten_thousand_ping_pongs_of_two_loops(link):
    """A lost wake-up would stop the exchange."""
    count = 10_000

    async def play():
        for i in range(count):
            await link.c.isend(i.to_bytes(4, "little"))
            assert await link.c.irecv() == i.to_bytes(4, "little")

    link.peer.begin(LOOP_ANSWERS, count=count)
    asyncio.run(asyncio.wait_for(play(), 100))
    link.peer.result(timeout=100)


def test_large_ping_pongs_of_two_loops(link):
    async def play():
        for i in range(20):
            await link.c.isend(bytes([i]) * 3_000_000)
            assert await link.c.irecv() == bytes([i]) * 3_000_000

    link.peer.begin(LOOP_ANSWERS, count=20)
    asyncio.run(asyncio.wait_for(play(), 100))
    link.peer.result()


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
        link.peer.begin("for i in range(20): c.send(bytes([i]))")
        got = await asyncio.gather(*tasks[1::2])
        return got + [await link.c.irecv() for _ in range(10)]

    assert asyncio.run(asyncio.wait_for(main(), 60)) == [bytes([i]) for i in range(20)]
    link.peer.result()


def test_a_time_limit_in_a_loop_loses_nothing(link):
    async def main():
        request = link.c.irecv()

        async def wait(awaiting):
            return await awaiting

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(asyncio.shield(request)), 0.05)
        link.peer.begin("c.send(b'late'); c.send(b'later')")
        first = await request
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(link.c.irecv(tag=1)), 0.05)
        return first, await link.c.irecv()

    assert asyncio.run(asyncio.wait_for(main(), 60)) == (b"late", b"later")
    link.peer.result()


def test_a_lost_peer_wakes_a_loop(link):
    async def main():
        asyncio.get_running_loop().call_later(0.2, link.peer.kill)
        with pytest.raises(pscompy.PeerLost):
            await link.c.irecv()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_closed_connection_wakes_a_loop(link):
    async def main():
        asyncio.get_running_loop().call_later(0.2, link.c.close)
        with pytest.raises(pscompy.Closed):
            await link.c.irecv()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_loop_and_a_blocked_thread(link):
    """A coroutine and a thread wait for the same connection; each receives its own messages."""
    count = 500
    link.peer.begin("for i in range(n): c.send(b'l', 1); c.send(b't', 2); c.recv(tag=3)", n=count)

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
    link.peer.begin(ANSWER, count=count, n=2)

    async def play(tag):
        for i in range(count):
            await link.c.isend(i.to_bytes(4, "little"), tag=tag)
            assert await link.c.irecv(tag=tag) == i.to_bytes(4, "little")

    together(*(lambda tag=tag: asyncio.run(asyncio.wait_for(play(tag), 60)) for tag in range(2)))
    link.peer.result()


def test_accepting_and_opening_in_a_loop(transport, start, open_session):
    session = open_session(**ONLY[transport])
    peer = start(ONLY[transport])
    address = peer("sock = session.listen('127.0.0.1'); sock.address")

    async def main():
        async with session.listen("127.0.0.1") as sock:
            peer.begin(
                "[session.connect(address).send(bytes([i])) for i in range(10)]",
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


def test_a_loop_of_ones_own(link):
    """Another event loop would use fileno, arm and progress like this source does."""
    source = """
    import select
    def await_(request):
        while not request.test():
            while not session.arm():
                session.progress()
            if not request.test():
                assert select.select([session], [], [], 20)[0], "a wake-up was lost"
            session.progress()
        return request.result()
    for _ in range(3000):
        await_(c.isend(await_(c.irecv())))
    """
    link.peer.begin(source)
    for i in range(2900):
        link.c.send(i.to_bytes(4, "little"))
        assert link.c.recv(timeout=BOUND) == i.to_bytes(4, "little")
    for i in range(100):
        link.c.send(bytes([i]) * 400_000)
        assert link.c.recv(timeout=BOUND) == bytes([i]) * 400_000
    link.peer.result()
