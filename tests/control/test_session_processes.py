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
from tests.waiting import STAYS, asleep

Make = Callable[..., Session]


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
