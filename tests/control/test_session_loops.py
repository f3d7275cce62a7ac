"""Sessions in an event loop: asyncio, and loops that wait on the session's descriptor."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Callable

import pytest

import pscompy
from pscompy import Session
from tests.waiting import expect_soon

Make = Callable[..., Session]


def test_asyncio(session: Make) -> None:
    async def serve() -> list[str]:
        got = []
        async with Session() as server, server.listen() as socket, Session() as client:
            connections = [client.connect(socket.address) for _ in range(3)]
            opened = asyncio.gather(*(_opened(c) for c in connections))
            async for accepted in socket:
                got.append(accepted.transport)
                if len(got) == 3:
                    break
            await opened
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_next(socket), 0.05)
            connections[0].send(b"x")
        return got

    assert len(asyncio.run(asyncio.wait_for(serve(), 60))) == 3


async def _opened(connection: pscompy.Connection) -> None:
    await connection.iopen()


async def _next(socket: pscompy.Socket) -> pscompy.Connection:
    async for connection in socket:
        return connection
    raise AssertionError("closed")


def test_what_is_accepted_while_nobody_waits_is_not_lost(session: Make) -> None:
    async def serve() -> str:
        async with Session() as server, server.listen() as socket:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_next(socket), 0.05)
            with Session("late") as client:
                await client.connect(socket.address).iopen()
                return (await asyncio.wait_for(_next(socket), 60)).peer

    assert asyncio.run(serve()).startswith("late")


@pytest.mark.parametrize("how", ["await", "async for"])
def test_a_connection_of_a_cancelled_accept_keeps_its_place(session: Make, how: str) -> None:
    """The connections open while the loop does not run, so no task has received one."""

    async def accepted(socket: pscompy.Socket) -> pscompy.Connection:
        return await socket.iaccept() if how == "await" else await _next(socket)

    async def serve() -> list[str]:
        async with Session() as server, server.listen() as socket:
            tasks = [asyncio.create_task(accepted(socket)) for _ in range(3)]
            await asyncio.sleep(0)
            waiting = [refer() for refer in socket._waiting.values()]
            assert len(waiting) == 3
            for name, request in zip(("first", "second", "third"), waiting, strict=True):
                session(name).connect(socket.address).open(60)
                expect_soon(lambda: request.arrival)  # noqa: B023
            for task in (tasks[1], tasks[0]):
                task.cancel()
            for task in tasks[:2]:
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert (await tasks[2]).peer.startswith("third")
            return [(await asyncio.wait_for(accepted(socket), 60)).peer for _ in range(2)]

    first, second = asyncio.run(serve())
    assert (first.startswith("first"), second.startswith("second")) == (True, True)


def test_a_connection_that_is_put_back_meets_who_waits_or_is_closed(session: Make) -> None:
    socket = session().listen()
    first, second = socket.iaccept(), socket.iaccept()
    session("client").connect(socket.address).open(60)
    expect_soon(lambda: first.arrival)
    first._requeue()
    assert first.cancelled()
    assert second.wait(60).peer.startswith("client")
    third = socket.iaccept()
    other = session("other").connect(socket.address)
    other.open(60)
    expect_soon(lambda: third.arrival)
    socket.close()
    third._requeue()
    expect_soon(lambda: other.state is pscompy.ConnectionState.CLOSED)


def test_a_foreign_loop_sleeps_on_the_descriptor(session: Make) -> None:
    server, client = session(), session()
    socket = server.listen()
    out = client.connect(socket.address)
    out.open(60)
    into = socket.accept(60)
    for number in range(200):
        request = into.irecv()
        threading.Timer(0.001, out.send, (b"%d" % number,)).start()
        while not request.test():
            if server.arm():
                ready, _, _ = select.select([server], [], [], 20)
                assert ready, "a wake-up was lost"
            server.progress()
        assert bytes(request.result()) == b"%d" % number
