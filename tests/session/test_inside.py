"""Calls from finalizers and signal handlers while their thread is inside pscompy, and from
finalizers on the control thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest
from puppets import BOUND, ONLY

import pscompy
from pscompy.api.c.guard import Lock, guard, inside
from pscompy.config import logs
from tests.waiting import expect_soon


@pscompy.action
def answer(number: int) -> int:
    return number + 1


class Dropped:
    """Calls a function when it is dropped."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def __del__(self) -> None:
        self.act()


@pytest.fixture
def listening(open_session, transport):
    """A session that listens, and its socket."""
    session = open_session(**ONLY[transport])
    return session, session.listen("127.0.0.1")


def in_a_lock(_: pscompy.Session, act: Callable[[], object]) -> None:
    """Call `act` in a finalizer, while its thread is inside pscompy."""
    with guard:
        Dropped(act)
    assert not inside()


def on_the_control_thread(session: pscompy.Session, act: Callable[[], object]) -> None:
    """Call `act` in a finalizer on the session's control thread."""
    done = threading.Event()

    def drop() -> None:
        Dropped(act)
        done.set()

    session.listen("127.0.0.1")  # starts the thread
    session._control._thread.call(drop)
    assert done.wait(BOUND)


@pytest.fixture(params=[in_a_lock, on_the_control_thread])
def place(request):
    return request.param


# ---- calls that do not wait ----


def test_first_contact(open_session, listening, transport, place):
    """Messages, objects and calls of actions begin to connect, and arrive."""
    there, sock = listening
    here = open_session(**ONLY[transport])
    connection, kept = here.connect(sock.address), []

    def act():
        kept.append(connection.isend(b"bytes", tag=1))
        kept.append(connection.isend_obj({"an": "object"}, tag=2))
        kept.append(connection.submit(answer, 1))
        kept.append(connection.irecv(tag=3))
        kept.append(connection.irecv_obj(tag=4))
        kept.append(connection.iopen())
        kept.append(repr(connection))
        kept.append(here.stats)

    place(here, act)
    assert len(kept) == 8
    accepted = sock.accept(BOUND)
    serving = threading.Thread(target=serve, args=(there,))
    serving.start()
    assert accepted.recv(tag=1, timeout=BOUND) == b"bytes"
    assert accepted.recv_obj(tag=2, timeout=BOUND) == {"an": "object"}
    assert kept[2].result(BOUND) == 2
    accepted.send(b"back", tag=3)
    accepted.send_obj(["back"], tag=4)
    assert (kept[3].wait(BOUND), kept[4].wait(BOUND)) == (b"back", ["back"])
    kept[5].wait(BOUND)
    there.close()
    serving.join()


def serve(session: pscompy.Session) -> None:
    with pytest.raises(pscompy.Closed):
        session.serve()


def test_later_calls(open_session, listening, transport, place):
    there, sock = listening
    here = open_session(**ONLY[transport])
    connection = here.connect(sock.address)
    connection.open(BOUND)
    accepted = sock.accept(BOUND)
    posted, refused = connection.irecv(tag=9), []

    def act():
        connection.isend(b"bytes", tag=1)
        connection.isend_obj([1], tag=2)
        refused.append(posted.cancel())
        refused.append(sock.iaccept().cancel())
        sock.close()
        connection.close()

    place(here, act)
    assert accepted.recv(tag=1, timeout=BOUND) == b"bytes"
    assert accepted.recv_obj(tag=2, timeout=BOUND) == [1]
    assert refused == [True, True]
    with pytest.raises(pscompy.Closed):
        sock.accept(BOUND)
    with pytest.raises(pscompy.Closed):
        accepted.recv(timeout=BOUND)
    assert there.stats["connections_up"] == 1


def test_futures(open_session, listening, transport, place):
    """A future with a time limit, and one that is cancelled; nobody serves there."""
    here = open_session(**ONLY[transport])
    connection, futures = here.connect(listening[1].address), []

    def act():
        futures.append(connection.with_options(timeout=0.01).submit(answer, 1))
        futures.append(connection.submit(answer, 2))
        futures.append(futures[1].cancel())

    place(here, act)
    with pytest.raises(pscompy.Timeout):
        futures[0].result(BOUND)
    assert futures[2]
    assert futures[1].cancelled()


def test_closing(open_session, transport, place):
    """Sessions and regions are closed in the background."""
    here = open_session(**ONLY[transport])
    other = open_session(**ONLY[transport])
    buffer = bytearray(10)
    region = here.register(buffer)
    with pytest.raises(BufferError):
        buffer.append(0)

    def act():
        region.close()
        other.close()
        here.close()

    place(here, act)
    expect_soon(lambda: here._control_ended and other._control_ended)
    buffer.append(0)


def test_an_unusable_key_fails_the_message(
    open_session, listening, transport, tmp_path, monkeypatch
):
    """A call that was put off cannot raise the error: the requests have it."""
    monkeypatch.delenv("PSP_KEY")
    key = tmp_path / "key"
    key.write_text("readable by all")
    key.chmod(0o644)
    here = open_session(**ONLY[transport], KEY_FILE=str(key))
    connection = here.connect(listening[1].address)
    with pytest.raises(pscompy.AuthError):
        connection.isend(b"x")
    with guard:
        sent, opened = connection.isend(b"x"), connection.iopen()
    for request in (sent, opened):
        with pytest.raises(pscompy.AuthError, match=str(key)):
            request.wait(BOUND)


# ---- calls that wait ----


WAITS = {
    "recv": lambda connection, _: connection.recv(),
    "recv_obj": lambda connection, _: connection.recv_obj(),
    "recv_array": lambda connection, _: connection.recv_array("u1", 1),
    "probe_obj": lambda connection, _: connection.probe_obj(),
    "a long send_obj": lambda connection, _: connection.send_obj(bytearray(8 << 20)),
    "call": lambda connection, _: connection.call(answer, 1),
    "result": lambda connection, _: connection.submit(answer, 1).result(),
    "exception": lambda connection, _: connection.submit(answer, 1).exception(),
    "accept": lambda _, sock: sock.accept(),
    "accept with a limit": lambda _, sock: sock.accept(60),
    "serve": lambda connection, _: connection._context.service().serve_until(connection.irecv()),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_call_that_would_wait_raises(open_session, listening, transport, place, name):
    here = open_session(**ONLY[transport])
    connection, raised = here.connect(listening[1].address), []
    mine = here.listen("127.0.0.1")

    def act():
        try:
            WAITS[name](connection, mine)
        except BaseException as error:
            raised.append(error)

    place(here, act)
    assert [type(it) for it in raised] == [RuntimeError]
    assert "use a call that does not wait (isend, irecv" in str(raised[0])


# ---- locks that are held for long ----


def test_another_thread_that_starts_the_control_thread_is_not_waited_for(
    open_session, listening, transport
):
    here = open_session(**ONLY[transport])
    connection = here.connect(listening[1].address)
    begin, over = threading.Event(), threading.Event()

    def hold():
        with here._control._lock:
            begin.set()
            over.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    begin.wait()
    lock = Lock()
    lock.acquire()
    sent = connection.isend(b"x")  # returns although the lock is held
    over.set()
    holder.join()
    lock.release()
    sent.wait(BOUND)
    assert listening[1].accept(BOUND).recv(timeout=BOUND) == b"x"


def test_a_session_opens_while_the_log_is_set_up(open_session):
    """For example a handler of the log that is dropped then opens one."""
    with logs._lock:
        opened = open_session(DEBUG=logging.getLogger("pscompy").level and 1)
    assert opened.stats["requests_used"] == 0
