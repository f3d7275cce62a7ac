"""Sessions and sockets: listen, connect, accept, close; in one process and in several."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Callable

import pytest
from processes import Child

import pscompy
from pscompy import Closed, ConnectError, ConnectionState, Session, Timeout
from tests.waiting import STAYS, asleep, expect_soon

Make = Callable[..., Session]

TRANSPORTS = ["shm", "tcp"]


def only(transport: str) -> dict[str, int]:
    return {name.upper(): 0 for name in TRANSPORTS if name != transport}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_sessions_talk(session: Make, transport: str) -> None:
    one, two = session("one", **only(transport)), session("two", **only(transport))
    socket = one.listen()
    there = two.connect(socket.address)
    assert there.state is ConnectionState.LAZY
    assert there.transport == ""
    sent = there.isend(b"hello")
    here = socket.accept(60)
    assert bytes(here.recv()) == b"hello"
    here.send(b"and back")
    assert bytes(there.recv()) == b"and back"
    sent.wait(60)
    assert here.transport == there.transport == transport
    assert (here.peer.split()[0], there.peer.split()[0]) == ("two", "one")
    assert one.stats["connections_up"] == two.stats["connections_up"] == 1


def test_the_signatures_are_those_that_programs_use() -> None:
    signatures: dict[Callable[..., object], dict[str, object]] = {
        Session: {"name": None, "config": None},
        Session.listen: {"host": None, "port": 0},
        Session.connect: {"address": inspect.Parameter.empty},
        Session.register: {"buf": inspect.Parameter.empty},
        Session.on_message: dict.fromkeys(("id", "handler"), inspect.Parameter.empty),
        pscompy.Socket.accept: {"timeout": None},
    }
    for function, expected in signatures.items():
        parameters = dict(inspect.signature(function).parameters)
        parameters.pop("self", None)
        assert {name: p.default for name, p in parameters.items()} == expected


def test_an_address_is_one_word_and_names_the_session(session: Make) -> None:
    socket = session("a name with spaces, ü and /").listen()
    assert socket.address.isprintable()
    assert len(socket.address.split()) == 1
    assert socket.address.startswith("psp://")


@pytest.mark.parametrize("address", ["", "nowhere", "psp://", "host:0", "host:70000", "a b:1"])
def test_connect_raises_for_what_is_no_address(session: Make, address: str) -> None:
    with pytest.raises(ConnectError, match="no address"):
        session().connect(address)


def test_connecting_to_an_own_socket_works(session: Make) -> None:
    own = session()
    socket = own.listen()
    out = own.connect(socket.address)
    sent = out.isend(b"to myself")
    assert bytes(socket.accept(60).recv(timeout=60)) == b"to myself"
    sent.wait(60)


def test_accept_gives_connections_in_the_order_in_which_they_came_up(session: Make) -> None:
    server = session()
    socket = server.listen()
    clients = [session(f"client {number}") for number in range(5)]
    for client in clients:
        client.connect(socket.address).open(60)
    assert [socket.accept(60).peer.rpartition(" (")[0] for _ in clients] == [
        client.name for client in clients
    ]


def test_a_connection_comes_up_without_accept(session: Make) -> None:
    socket = session().listen()
    connection = session().connect(socket.address)
    connection.send(b"eager", timeout=60)
    assert connection.state is ConnectionState.UP


def test_accept_times_out_and_loses_nothing(session: Make) -> None:
    socket = session().listen()
    with pytest.raises(Timeout):
        socket.accept(0.05)
    client = session("late")
    client.connect(socket.address).open(60)
    assert socket.accept(60).peer.startswith("late")


def test_a_cancelled_accept_leaves_the_connection_for_the_next(session: Make) -> None:
    socket = session().listen()
    first, second = socket.iaccept(), socket.iaccept()
    assert first.cancel()
    session("client").connect(socket.address).open(60)
    assert second.wait(60).peer.startswith("client")


def test_iteration_ends_when_the_socket_is_closed(session: Make) -> None:
    socket = session().listen()
    seen: list[str] = []
    accepting = threading.Thread(target=lambda: seen.extend(c.peer for c in socket))
    accepting.start()
    session("client").connect(socket.address).open(60)
    expect_soon(lambda: seen)
    socket.close()
    accepting.join(60)
    assert not accepting.is_alive()
    assert len(seen) == 1
    with pytest.raises(Closed):
        socket.accept()


def test_a_closed_socket_refuses(session: Make) -> None:
    socket = session().listen("127.0.0.1")
    socket.close()
    socket.close()
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1.*refused"):
        session(RETRY=0).connect(socket.address).open(60)


def test_listening_twice_at_one_port_says_so(session: Make) -> None:
    socket = session().listen("127.0.0.1")
    port = int(socket.address.rpartition(":")[2].partition("/")[0])
    with pytest.raises(ConnectError, match=f"{port}.*in use"):
        session().listen("127.0.0.1", port)


def test_several_places_of_an_address_are_tried(session: Make) -> None:
    socket = session("server").listen("127.0.0.1")
    place = socket.address.removeprefix("psp://").partition("/")[0]
    connection = session().connect(f"psp://127.0.0.1:1,localhost:1,{place}/server")
    connection.open(60)
    assert connection.peer.startswith("server")


def test_an_address_that_belongs_to_somebody_else_now_is_noticed(session: Make) -> None:
    socket = session("server").listen("127.0.0.1")
    stale = socket.address.replace("/server", "/former")
    with pytest.raises(ConnectError, match="is gone: its address is server"):
        session().connect(stale).open(60)
    socket.close()


def test_ipv6(session: Make) -> None:
    try:
        socket = session().listen("::1")
    except ConnectError as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert socket.address.startswith("psp://[::1]:")
    session().connect(socket.address).open(60)


# ---- ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_closing_is_an_end_in_order_on_both_sides(session: Make, transport: str) -> None:
    server, client = session(**only(transport)), session(**only(transport))
    socket = server.listen()
    out = client.connect(socket.address)
    out.send(b"last words", timeout=60)
    into = socket.accept(60)
    client.close()
    assert bytes(into.recv(timeout=60)) == b"last words"
    with pytest.raises(Closed):
        into.recv(timeout=60)
    assert into.state is ConnectionState.CLOSED


def test_close_is_idempotent_and_what_is_closed_says_so(session: Make) -> None:
    own = session()
    socket = own.listen()
    connection = own.connect(socket.address)
    own.close()
    own.close()
    for use in (
        own.listen,
        lambda: own.connect("host:1"),
        lambda: own.stats,
        own.progress,
        own.fileno,
        lambda: connection.send(b""),
        lambda: connection.open(1),
        socket.accept,
    ):
        with pytest.raises(Closed):
            use()
    assert connection.state is ConnectionState.CLOSED
    socket.close()
    connection.close()


def test_close_wakes_what_waits_in_other_threads(session: Make) -> None:
    server, client = session(), session()
    socket = server.listen()
    connection = client.connect(socket.address)
    connection.open(60)
    ended: list[str] = []

    def wait(call: Callable[[], object]) -> None:
        try:
            call()
        except Closed:
            ended.append("closed")

    waiting = [
        threading.Thread(target=wait, args=(call,))
        for call in (connection.recv, client.listen().accept)
    ]
    for thread in waiting:
        thread.start()
        while not asleep(thread.native_id or 0):
            pass
    client.close()
    for thread in waiting:
        thread.join(60)
    assert ended == ["closed", "closed"]


def test_close_from_several_threads(session: Make) -> None:
    own = session()
    own.connect(own.listen().address).open(60)
    closing = [threading.Thread(target=own.close) for _ in range(4)]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(60)
        assert not thread.is_alive()


def test_sessions_leave_no_descriptors_and_no_threads(session: Make) -> None:
    def use() -> None:
        with Session() as one, Session() as two:
            socket = one.listen()
            connection = two.connect(socket.address)
            connection.send(b"x", timeout=60)
            socket.accept(60).recv(timeout=60)
            two.arm()

    use()
    gc.collect()
    descriptors, threads = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    for _ in range(5):
        use()
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) <= descriptors
    assert set(threading.enumerate()) <= threads


def test_lazy_connections_cost_no_thread_and_no_peer(session: Make) -> None:
    own = session()
    before = set(threading.enumerate())
    connections = [own.connect(f"192.0.2.1:{port}") for port in range(1, 201)]
    assert set(threading.enumerate()) <= before
    assert {connection.state for connection in connections} == {ConnectionState.LAZY}
    start = time.monotonic()
    own.close()
    assert time.monotonic() - start < 60  # a second each would be too much


FORGETFUL = """
import os, sys, threading, pscompy
session = pscompy.Session()
socket = session.listen()
connection = session.connect(socket.address)
connection.open(60)
pending = connection.irecv()
print("ready", flush=True)
"""


@pytest.mark.parametrize(
    "last", ["", "del session, socket, connection", "raise SystemExit(3)", "1 / 0"]
)
def test_the_interpreter_ends_with_requests_open(last: str) -> None:
    with Child(FORGETFUL + last) as child:
        assert child.line() == "ready"
        code, _, errors = child.end(30)
    assert code == {"raise SystemExit(3)": 3, "1 / 0": 1}.get(last, 0), errors


SERVER = """
import sys, pscompy
with pscompy.Session("server") as session:
    with session.listen() as socket:
        print(socket.address, flush=True)
        for connection in socket:
            connection.send(b"welcome")
            while True:
                try:
                    connection.send(connection.recv())
                except (pscompy.Closed, pscompy.PeerLost) as error:
                    print(type(error).__name__, flush=True)
                    break
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_killed_peer_is_noticed(session: Make, transport: str) -> None:
    off = {f"PSP_{name}": str(value) for name, value in only(transport).items()}
    with Child(SERVER, **off) as child:
        connection = session(**only(transport)).connect(child.line())
        assert bytes(connection.recv(timeout=60)) == b"welcome"
        assert connection.transport == transport
        killing = threading.Timer(0.1, os.kill, (child.pid, signal.SIGKILL))
        killing.start()
        with pytest.raises(pscompy.PeerLost) as caught:
            connection.recv(timeout=60)
        assert caught.value.peer
        assert connection.state is ConnectionState.FAILED


def test_a_client_that_dies_does_not_end_its_server(session: Make) -> None:
    with Child(SERVER) as server:
        address = server.line()
        dying = (
            "import os, sys, pscompy\n"
            "connection = pscompy.Session().connect(sys.argv[1])\n"
            "connection.recv(timeout=60)\n"
            "os.kill(os.getpid(), 9)\n"
        )
        with Child(dying, address) as client:
            assert client.end()[0] == -signal.SIGKILL
        assert server.line() == "PeerLost"
        with session() as polite:
            connection = polite.connect(address)
            connection.send(b"still there?")
            assert bytes(connection.recv(timeout=60)) == b"welcome"
            assert bytes(connection.recv(timeout=60)) == b"still there?"
        assert server.line() == "Closed"


# ---- fork, pickle -------------------------------------------------------------------------------


def test_a_child_of_a_fork_uses_a_session_of_its_own(session: Make) -> None:
    server, parent = session(), session()
    socket = server.listen()
    connection = parent.connect(socket.address)
    connection.open(60)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, _in_the_child(parent, connection, socket.address).encode())
        os._exit(0)
    os.close(write)
    accepted = [socket.accept(60), socket.accept(60)]
    assert bytes(accepted[1].recv(timeout=60)) == b"from the child"
    with os.fdopen(read) as pipe:
        assert pipe.read() == "ok"
    assert os.waitpid(pid, 0)[1] == 0
    connection.send(b"as before", timeout=60)
    assert bytes(accepted[0].recv(timeout=60)) == b"as before"


def _in_the_child(parent: Session, connection: pscompy.Connection, address: str) -> str:
    try:
        for use in (
            parent.listen,
            lambda: parent.connect(address),
            lambda: connection.send(b""),
            lambda: connection.recv(),
            lambda: connection.open(1),
            parent.progress,
        ):
            try:
                use()
            except pscompy.PscomError as error:
                if "fork" not in str(error):
                    return repr(error)
            else:
                return f"{use} did not raise"
        connection.close()
        parent.close()
        with Session() as own:
            own.connect(address).send(b"from the child", timeout=60)
    except BaseException as error:
        return repr(error)
    return "ok"


def test_the_parents_death_is_noticed_although_a_child_lives_on(session: Make) -> None:
    forking = (
        "import os, sys, time, pscompy\n"
        "session = pscompy.Session()\n"
        "connection = session.connect(sys.argv[1])\n"
        "connection.send(b'here', timeout=60)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.close(0), os.close(1), os.close(2)\n"
        f"    {STAYS}\n"
        "print(child, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    socket = session().listen()
    with Child(forking, socket.address) as process:
        left = int(process.line())
        try:
            connection = socket.accept(60)
            assert bytes(connection.recv(timeout=60)) == b"here"
            with pytest.raises(pscompy.PeerLost):
                connection.recv(timeout=60)
        finally:
            os.kill(left, signal.SIGKILL)


def test_what_stays_in_its_process_refuses_to_be_pickled(session: Make) -> None:
    own = session()
    socket = own.listen()
    for thing in (own, socket, own.connect(socket.address)):
        with pytest.raises(TypeError, match=r"stays in its process.*address"):
            pickle.dumps(thing)


# ---- other loops --------------------------------------------------------------------------------


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
    """They come while the loop has no turn, so nobody has got them."""

    async def accepted(socket: pscompy.Socket) -> pscompy.Connection:
        return await socket.iaccept() if how == "await" else await _next(socket)

    async def serve() -> list[str]:
        async with Session() as server, server.listen() as socket:
            tasks = [asyncio.create_task(accepted(socket)) for _ in range(3)]
            await asyncio.sleep(0)
            waiting = list(socket._waiting)
            assert len(waiting) == 3
            for name, request in zip(("first", "second", "third"), waiting, strict=True):
                session(name).connect(socket.address).open(60)
                expect_soon(lambda: request.place)  # noqa: B023
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
    expect_soon(lambda: first.place)
    first._give_back()
    assert first.cancelled()
    assert second.wait(60).peer.startswith("client")
    third = socket.iaccept()
    other = session("other").connect(socket.address)
    other.open(60)
    expect_soon(lambda: third.place)
    socket.close()
    third._give_back()
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


# ---- peers that are busy ------------------------------------------------------------------------

BUSY = """
import ctypes, select, sys, pscompy
session = pscompy.Session("busy")
socket = session.listen()
print(socket.address, flush=True)
sys.stdin.readline()
print("busy", flush=True)
if sys.argv[1] == "python":
    while not select.select([sys.stdin], [], [], 0)[0]:  # told to stop
        pass
else:
    ctypes.PyDLL(None).usleep(900_000)  # PyDLL: with the GIL
    ctypes.PyDLL(None).usleep(900_000)
print("done", flush=True)
connection = socket.accept(60)
print(bytes(connection.recv()).decode(), flush=True)
session.close()
"""


def test_a_peer_that_computes_is_connected_to_meanwhile(session: Make) -> None:
    with Child(BUSY, "python") as child:
        connection = session().connect(child.line())
        child.say("go")
        assert child.line() == "busy"
        connection.send(b"are you there?")
        child.say("stop")
        assert child.line() == "done"
        assert child.line() == "are you there?"
        assert child.end()[0] == 0


def test_a_peer_that_holds_the_gil_is_connected_to_as_soon_as_it_lets_go(session: Make) -> None:
    with Child(BUSY, "gil") as child:
        connection = session().connect(child.line())
        child.say("go")
        assert child.line() == "busy"
        connection.send(b"at last")
        assert child.line() == "done"
        assert child.line() == "at last"
        assert child.end()[0] == 0


def test_ctrl_c_lands_in_the_main_thread_and_the_session_goes_on() -> None:
    code = (
        "import sys, pscompy\n"
        "with pscompy.Session() as session:\n"
        "    socket = session.listen()\n"
        "    connection = session.connect(socket.address)\n"
        "    connection.open(60)\n"
        "    accepted = socket.accept(60)\n"
        "    for wait in (socket.accept, connection.recv):\n"
        "        try:\n"
        "            print('waiting', flush=True)\n"
        "            wait()\n"
        "        except KeyboardInterrupt:\n"
        "            print('interrupted', flush=True)\n"
        "    accepted.send(b'goes on')\n"
        "    print(bytes(connection.recv()).decode())\n"
    )
    with Child(code) as child:
        for _ in range(2):
            assert child.line() == "waiting"
            while not asleep(child.pid, child.pid):
                pass
            os.kill(child.pid, signal.SIGINT)
            assert child.line() == "interrupted"
        assert child.end() == (0, "goes on\n", "")


def test_a_sleeping_session_uses_no_processor() -> None:
    code = (
        "import time, pscompy\n"
        "with pscompy.Session() as session:\n"
        "    socket = session.listen()\n"
        "    connection = session.connect(socket.address)\n"
        "    connection.open(60)\n"
        "    socket.accept(60)\n"
        "    used = time.process_time()\n"
        "    for wait in (socket.accept, connection.recv):\n"
        "        try:\n"
        "            wait(timeout=1)\n"
        "        except pscompy.Timeout:\n"
        "            pass\n"
        "    print(time.process_time() - used)\n"
    )
    with Child(code) as child:
        assert float(child.line()) < 0.3
