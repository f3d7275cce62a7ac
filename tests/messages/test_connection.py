"""Connections as a session makes them."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import pscompy
from pscompy import ConnectionState, Session
from tests.program import program
from tests.waiting import expect_soon


def peer(address: str) -> None:
    import pscompy

    with pscompy.Session("child") as session:
        connection = session.connect(address)
        connection.send(b"x" * 10)
        connection.recv(timeout=60)


@pytest.fixture
def sessions() -> Iterator[tuple[Session, Session]]:
    with Session("server") as server, Session("client") as client:
        yield server, client


def test_states(sessions: tuple[Session, Session]) -> None:
    server, client = sessions
    listening = server.listen("127.0.0.1")
    connection = client.connect(listening.address)
    assert connection.state is ConnectionState.LAZY
    assert connection.transport == ""
    assert "lazy" in repr(connection)
    assert listening.address in repr(connection)
    connection.open(timeout=60)
    connection.open(timeout=0)
    assert connection.state is ConnectionState.UP
    assert connection.transport in ("shm", "tcp")
    assert connection.transport in repr(connection)
    assert connection.peer.startswith("server")
    assert str(connection.explain())
    with listening.accept(timeout=60) as accepted:
        connection.send(b"abc")
        assert accepted.recv_status(timeout=60) == (b"abc", (accepted, 0, 3))
        assert connection.stats["sent_messages"] == 1
    with pytest.raises(pscompy.Closed) as caught:
        connection.recv(timeout=60)
    assert caught.value.peer == connection.peer
    connection.close()
    connection.close()
    assert accepted.state in (ConnectionState.CLOSING, ConnectionState.CLOSED)


def test_first_use_connects(sessions: tuple[Session, Session]) -> None:
    server, client = sessions
    listening = server.listen("127.0.0.1")
    for use in (
        lambda connection: connection.isend(b""),
        lambda connection: connection.irecv(tag=1),
        lambda connection: connection.iprobe(),
    ):
        connection = client.connect(listening.address)
        use(connection)
        assert listening.accept(timeout=60).state is ConnectionState.UP


def test_iopen_is_awaitable(sessions: tuple[Session, Session]) -> None:
    server, client = sessions
    listening = server.listen("127.0.0.1")
    connection = client.connect(listening.address)

    async def main() -> None:
        await asyncio.wait_for(connection.iopen(), 60)
        assert connection.state is ConnectionState.UP
        await connection.iopen()

    asyncio.run(main())


def test_a_loop_is_woken_when_a_connection_comes_up(sessions: tuple[Session, Session]) -> None:
    """Messages queued while another thread connects are sent at once, although the loop sleeps."""
    server, client = sessions
    listening = server.listen("127.0.0.1")

    async def once() -> None:
        connection = client.connect(listening.address)
        await connection.isend(b"first use")
        with await listening.iaccept() as accepted:
            assert await accepted.irecv() == b"first use"
        connection.close()

    async def main() -> None:
        for _ in range(30):
            await asyncio.wait_for(once(), 60)

    asyncio.run(main())


def accept_after_a_dropped_task() -> None:
    async def main() -> None:
        with Session("server") as server, Session("client") as client, server.listen() as listening:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(listening.iaccept(), 0)
            client.connect(listening.address).open(60)
            accepted = await asyncio.wait_for(listening.iaccept(), 60)
            print(accepted.peer.partition(" ")[0])

    asyncio.run(main())


def test_a_dropped_task_of_an_accept_takes_no_connection() -> None:
    code = program(accept_after_a_dropped_task)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (ended.stdout, ended.returncode) == (b"client\n", 0)


def test_a_dropped_request_takes_no_connection(sessions: tuple[Session, Session]) -> None:
    server, client = sessions
    listening = server.listen()
    listening.iaccept()
    waiting, finished = listening.iaccept(), listening.iaccept()
    assert finished.cancel()
    assert len(listening._waiting) == 1
    client.connect(listening.address).open(60)
    assert waiting.wait(60).peer.startswith("client")


def test_a_dropped_request_gives_its_connection_back(sessions: tuple[Session, Session]) -> None:
    server, client = sessions
    listening = server.listen()
    requests = [listening._accepting()]
    client.connect(listening.address).open(60)
    expect_soon(lambda: requests[0].arrival)
    requests.clear()
    assert listening.accept(60).peer.startswith("client")


@pytest.mark.parametrize("collected", [False, True])
def test_a_dropped_request_calls_back(sessions: tuple[Session, Session], collected: bool) -> None:
    server, client = sessions
    listening = server.listen()
    seen: list[str] = []

    def begin() -> None:
        request = listening.iaccept()
        request.add_done_callback(
            lambda it: seen.append((request if collected else it).wait().peer)
        )

    begin()
    gc.collect()
    client.connect(listening.address).open(60)
    expect_soon(lambda: (server.progress(), seen)[1])
    assert seen[0].startswith("client")
    gc.collect()
    with pytest.raises(pscompy.Timeout):
        listening.accept(0)


def test_a_peer_that_is_not_there(sessions: tuple[Session, Session]) -> None:
    server, _ = sessions
    address = server.listen("127.0.0.1").address
    server.close()
    with Session("hasty", {"RETRY": 0}) as client:
        check_refused(client.connect(address))


def check_refused(connection: pscompy.Connection) -> None:
    for call in (
        lambda: connection.open(timeout=60),
        lambda: connection.send(b"", timeout=60),
        lambda: connection.recv(timeout=60),
        lambda: connection.iopen().wait(60),
    ):
        with pytest.raises(pscompy.ConnectError) as caught:
            call()
        assert "server" in str(caught.value) or "cannot be reached" in str(caught.value)
    assert connection.state is ConnectionState.LAZY


def test_it_stays_in_its_process(sessions: tuple[Session, Session]) -> None:
    server, client = sessions
    connection = client.connect(server.listen("127.0.0.1").address)
    for attempt in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="send the address"):
            attempt(connection)


def test_a_closed_session(sessions: tuple[Session, Session]) -> None:
    server, client = sessions
    listening = server.listen("127.0.0.1")
    connection = client.connect(listening.address)
    connection.open(timeout=60)
    client.close()
    assert connection.state is ConnectionState.CLOSED
    assert connection.stats == {}
    assert "closed" in repr(connection)
    connection.close()
    with pytest.raises(pscompy.Closed):
        connection.send(b"")


def test_a_lost_peer(sessions: tuple[Session, Session]) -> None:
    server, _ = sessions
    listening = server.listen("127.0.0.1")
    child = subprocess.Popen([sys.executable, "-c", program(peer, listening.address)])
    try:
        connection = listening.accept(timeout=60)
        assert len(connection.recv(timeout=60)) == 10
        pending = connection.irecv()
        child.kill()
        before = time.monotonic()
        with pytest.raises(pscompy.PeerLost) as caught:
            pending.wait(timeout=60)
        assert time.monotonic() - before < 30
        assert isinstance(caught.value, ConnectionResetError)
        assert "child" in str(caught.value.peer)
        with pytest.raises(pscompy.PeerLost):
            connection.send(b"")
        assert connection.state is ConnectionState.FAILED
        assert pickle.loads(pickle.dumps(caught.value)).peer == caught.value.peer
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((5000,), TypeError, "the host to listen on is a str or None, not int"),
        (("localhost:5000",), pscompy.ConnectError, "host and port are two arguments"),
        (("tcp://*:5000",), pscompy.ConnectError, "host and port are two arguments"),
        ((None, "5000"), TypeError, "'str' object cannot be interpreted as an integer"),
    ],
)
def test_no_place_to_listen_at(
    sessions: tuple[Session, Session],
    arguments: tuple[Any, ...],
    error: type[Exception],
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        sessions[0].listen(*arguments)


def test_no_host_means_all_addresses(sessions: tuple[Session, Session]) -> None:
    with sessions[0].listen("") as all_of_them, sessions[0].listen() as the_same:
        places = [it.address.split("/")[0].rpartition(":")[0] for it in (all_of_them, the_same)]
        assert places[0] == places[1]


def test_an_asynchronous_block_closes_the_connection(sessions: tuple[Session, Session]) -> None:
    async def exchanges() -> None:
        with sessions[0].listen() as sock:
            async with sessions[1].connect(sock.address) as connection:
                await connection.isend(b"in the block")
                async with await sock.iaccept() as accepted:
                    assert await accepted.irecv() == b"in the block"
            assert connection.state in (ConnectionState.CLOSING, ConnectionState.CLOSED)

    asyncio.run(exchanges())
