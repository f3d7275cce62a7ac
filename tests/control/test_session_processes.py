"""Sessions of several processes: peers that are killed, forked, busy, or interrupted."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest
from peers import TRANSPORTS, only
from processes import Child

import pscompy
from pscompy import ConnectionState, Session
from tests.program import program
from tests.waiting import asleep, idles

Make = Callable[..., Session]


def serve() -> None:
    import pscompy

    with pscompy.Session("server") as session, session.listen() as socket:
        print(socket.address, flush=True)
        for connection in socket:
            connection.send(b"welcome")
            try:
                while True:
                    connection.send(connection.recv())
            except (pscompy.Closed, pscompy.PeerLost) as error:
                print(type(error).__name__, flush=True)


def connect_and_die(address: str) -> None:
    import os

    import pscompy

    connection = pscompy.Session().connect(address)
    connection.recv(timeout=60)
    os.kill(os.getpid(), 9)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_killed_peer_is_noticed(session: Make, transport: str) -> None:
    off = {f"PSP_{name}": str(value) for name, value in only(transport).items()}
    with Child(program(serve), **off) as child:
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
    with Child(program(serve)) as server:
        address = server.line()
        with Child(program(connect_and_die, address)) as client:
            assert client.end()[0] == -signal.SIGKILL
        assert server.line() == "PeerLost"
        with session() as polite:
            connection = polite.connect(address)
            connection.send(b"still there?")
            assert bytes(connection.recv(timeout=60)) == b"welcome"
            assert bytes(connection.recv(timeout=60)) == b"still there?"
        assert server.line() == "Closed"


# ---- fork -------------------------------------------------------------------------------


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


def fork_and_die(address: str) -> None:
    import os
    import time

    import pscompy

    session = pscompy.Session()
    connection = session.connect(address)
    connection.send(b"here", timeout=60)
    child = os.fork()
    if child == 0:
        for fd in range(3):
            os.close(fd)
        # short steps, because Python handles a signal that arrives just before a sleep only after
        # that sleep
        any(time.sleep(0.05) for _ in range(6000))
    print(child, flush=True)
    os.kill(os.getpid(), 9)


def test_the_parents_death_is_noticed_although_a_child_lives_on(session: Make) -> None:
    socket = session().listen()
    with Child(program(fork_and_die, socket.address)) as process:
        left = int(process.line())
        try:
            connection = socket.accept(60)
            assert bytes(connection.recv(timeout=60)) == b"here"
            with pytest.raises(pscompy.PeerLost):
                connection.recv(timeout=60)
        finally:
            os.kill(left, signal.SIGKILL)


# ---- peers that are busy ------------------------------------------------------------------------


def be_busy(kind: str) -> None:
    import ctypes
    import select
    import sys

    import pscompy

    session = pscompy.Session("busy")
    socket = session.listen()
    print(socket.address, flush=True)
    sys.stdin.readline()
    print("busy", flush=True)
    if kind == "python":
        while not select.select([sys.stdin], [], [], 0)[0]:  # until the test stops it
            pass
    else:
        ctypes.PyDLL(None).usleep(900_000)  # PyDLL: with the GIL
        ctypes.PyDLL(None).usleep(900_000)
    print("done", flush=True)
    connection = socket.accept(60)
    print(bytes(connection.recv()).decode(), flush=True)
    session.close()


def test_a_peer_that_computes_is_connected_to_meanwhile(session: Make) -> None:
    with Child(program(be_busy, "python")) as child:
        connection = session().connect(child.line())
        child.say("go")
        assert child.line() == "busy"
        connection.send(b"are you there?")
        child.say("stop")
        assert child.line() == "done"
        assert child.line() == "are you there?"
        assert child.end()[0] == 0


def test_a_peer_that_holds_the_gil_is_connected_to_as_soon_as_it_lets_go(session: Make) -> None:
    with Child(program(be_busy, "gil")) as child:
        connection = session().connect(child.line())
        child.say("go")
        assert child.line() == "busy"
        connection.send(b"at last")
        assert child.line() == "done"
        assert child.line() == "at last"
        assert child.end()[0] == 0


def wait_for_interrupts() -> None:
    import pscompy

    with pscompy.Session() as session:
        socket = session.listen()
        connection = session.connect(socket.address)
        connection.open(60)
        accepted = socket.accept(60)
        for wait in (socket.accept, connection.recv):
            try:
                print("waiting", flush=True)
                wait()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        accepted.send(b"goes on")
        print(bytes(connection.recv()).decode())


def test_ctrl_c_lands_in_the_main_thread_and_the_session_goes_on() -> None:
    with Child(program(wait_for_interrupts)) as child:
        for _ in range(2):
            assert child.line() == "waiting"
            while not asleep(child.pid, child.pid):
                pass
            os.kill(child.pid, signal.SIGINT)
            assert child.line() == "interrupted"
        assert child.end() == (0, "goes on\n", "")


def measure_waits() -> None:
    import contextlib
    import time

    import pscompy

    with pscompy.Session() as session:
        socket = session.listen()
        connection = session.connect(socket.address)
        connection.open(60)
        socket.accept(60)
        used = time.process_time()
        for wait in (socket.accept, connection.recv):
            with contextlib.suppress(pscompy.Timeout):
                wait(timeout=1)
        print(time.process_time() - used)


def test_a_sleeping_session_uses_no_processor() -> None:
    def used() -> float:
        with Child(program(measure_waits)) as child:
            return float(child.line())

    assert idles(used, 0.3)
