"""`session.dump()`: what a session has in flight, in words."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

import pscompy
from tests.program import program
from tests.waiting import asleep, expect_soon

LONG = bytes(1 << 24)


@pytest.fixture
def pair(open_session, transport):
    """Two sessions of this process: the connections of the one that dials, and of the other."""
    config = {name: int(name == transport.upper()) for name in ("SHM", "TCP")}
    server, client = open_session("server", **config), open_session("client", **config)
    listening = server.listen("127.0.0.1")
    dialed = client.connect(listening.address)
    dialed.send(b"hello")
    accepted = listening.accept(60)
    accepted.recv(timeout=60)
    return server, accepted, client, dialed


def test_requests_and_messages_of_both_sides(pair, transport):
    server, accepted, client, dialed = pair
    dialed.send(b"123", tag=3)
    sends = dialed.isend(LONG, tag=5)
    receives = dialed.irecv(tag=9)
    dialed.send_obj({"an": "object"}, tag=4)

    def show():
        server.progress()
        return server.dump()

    expect_soon(lambda: "tag 5" in show() and "tag 4" in show(), "the messages")
    text = show()
    assert "message from client (" in text
    assert f"tag 5, {len(LONG)} bytes, announced" in text
    assert "tag 3, 3 bytes, arrived" in text
    assert ", objects, arrived" in text
    assert f": UP over {transport}, lanes: 1; " in text
    other = client.dump()
    assert f"send to server ({text.split('(')[1].split(',')[0]}, pid " in other
    assert f"tag 5, {len(LONG)} bytes, announced; the peer has not received it yet" in other
    assert any("receive from server" in it and "tag 9" in it for it in other.splitlines())
    assert "waited for" not in other
    assert receives.cancel()
    received = accepted.irecv(tag=5)
    expect_soon(lambda: client.progress() + server.progress() == 0 and received.test(), "the rest")
    assert received.result() == LONG
    sends.wait(60)
    assert "tag 9" not in client.dump()
    assert "tag 5" not in client.dump()


def test_a_session_that_does_nothing(open_session):
    assert open_session().dump().count("    none") == 3


def dumps_twice(path):
    with pscompy.Session(config={"SIGQUIT": 1}):
        server = next(it for it in threading.enumerate() if it.name == "pscompy dump")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 2)
        os.kill(os.getpid(), signal.SIGQUIT)
        pipe = pscompy.api.dump._pipe[0]
        expect_soon(lambda: not any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))), "the signal")
        expect_soon(lambda: not server.is_alive() or asleep(server.native_id), "the end of a dump")
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), 2)
        os.kill(os.getpid(), signal.SIGQUIT)
        expect_soon(lambda: "<Session" in Path(path).read_text(), "the second dump", 20)


def test_a_dump_that_stderr_does_not_take_is_not_the_last_one(tmp_path):
    command = [sys.executable, "-c", program(dumps_twice, str(tmp_path / "err"))]
    assert subprocess.run(command, timeout=120).returncode == 0


def test_a_closed_session_has_no_dump(open_session):
    session = open_session()
    session.close()
    with pytest.raises(pscompy.Closed):
        session.dump()
