"""Sessions and Worlds that the program drops without closing them."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest
from puppets import BOUND, ONLY, own_descriptors

import pscompy
from pscompy.api import process
from tests.program import program
from tests.waiting import expect_soon

TIMES = 20


def collected(reference) -> bool:
    gc.collect()
    return reference() is None


def run_program(main, script, *arguments, **environ):
    done = subprocess.run(
        [sys.executable, "-X", "dev", script(main, *arguments)],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    return done.stdout, done.stderr


# ---- the warning ----


def drops() -> None:
    def cell() -> None:
        pscompy.Session("my session")
        pscompy.World()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cell()
        gc.collect()
    for it in caught:
        print(it.category.__name__, it.filename == __file__, it.lineno, it.message)


def test_the_warning_names_where_it_was_opened(script):
    out, err = run_program(drops, script)
    lines = {}
    for it in out.splitlines():
        name, file, line, text = it.split(" ", 3)
        assert (name, file) == ("ResourceWarning", "True")
        assert f":{line}, was dropped" in text
        lines["World" if "World" in text else text.split(",")[0]] = int(line)
    first = lines.pop("the Session my session")
    assert lines == {"World": first + 1}
    assert err == ""


def ends_without_closing(kind: str) -> None:
    kept = {"Session": pscompy.Session, "World": pscompy.World}[kind]()
    kept.itself = kept
    if kind == "Session":
        kept.listen("127.0.0.1")
    gc.disable()
    gc.freeze()


@pytest.mark.parametrize("kind", ["Session", "World"])
def test_none_at_the_end_of_the_interpreter(script, kind):
    assert run_program(ends_without_closing, script, kind) == ("", "")


def an_error() -> None:
    """The filter makes an exception of the warning: the session is closed nevertheless."""
    import os

    sys.unraisablehook = lambda it: print(it.exc_type.__name__)
    warnings.simplefilter("error")
    pscompy.Session().listen("127.0.0.1")
    before = len(os.listdir("/proc/self/fd"))
    gc.collect()
    deadline = time.monotonic() + 60
    while len(os.listdir("/proc/self/fd")) > before - 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    print(len(os.listdir("/proc/self/fd")) <= before - 10)


def test_a_warning_that_is_an_error(script):
    assert run_program(an_error, script) == ("ResourceWarning\nTrue\n", "")


def test_closed_ones_do_not_warn(recwarn):
    warnings.simplefilter("always")
    with pscompy.Session():
        pass
    pscompy.Session().close()
    with pytest.raises(KeyError), pscompy.World():
        raise KeyError
    gc.collect()
    assert [it for it in recwarn if it.category is ResourceWarning] == []


# ---- what it leaves ----


def a_session() -> None:
    pscompy.Session()


def one_that_listens() -> None:
    sock = pscompy.Session().listen("127.0.0.1")
    sock.iaccept()


def one_that_awaits_a_connection() -> None:
    async def cut_short() -> None:
        sock = pscompy.Session().listen("127.0.0.1")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sock.iaccept(), 0.001)

    asyncio.run(cut_short())


def two_that_are_connected(**config) -> None:
    here, there = pscompy.Session(config=config), pscompy.Session(config=config)
    connection = here.connect(there.listen("127.0.0.1").address)
    connection.send(b"x")
    connection.isend_obj([1])


def one_whose_handlers_refer_to_it() -> None:
    session = pscompy.Session()
    sock = session.listen("127.0.0.1")
    connection = session.connect(sock.address)
    session.on_message(1, lambda *_: (session, connection, sock))
    connection.open(BOUND)


def one_whose_handler_refers_to_its_memory() -> None:
    session = pscompy.Session()
    block = session.allocate(1 << 20)
    session.on_message(1, lambda *_: block)


@pscompy.action
def nothing() -> None:
    pass


@pscompy.action
def a_moment() -> None:
    """Long enough for the service to take note of the call's time limit."""
    time.sleep(0.02)


def one_that_calls_actions() -> None:
    world = pscompy.World()
    world.call(0, nothing)
    assert world.with_options(timeout=10_000).submit(0, a_moment).result() is None


def a_world() -> None:
    world = pscompy.World()
    world.send(b"x", dest=0)
    world.barrier()
    world.send_obj([1], dest=0)


def one_with_a_dropped_request() -> None:
    """Nobody takes note of its completion."""
    pscompy.World().isend(b"x", dest=0)


def one_with_endpoints() -> None:
    world = pscompy.World()
    first, _ = world.endpoints(2)
    first.send(b"x", dest=0)


def one_with_memory() -> None:
    session = pscompy.Session()
    session.register(bytearray(10))
    session.pin(bytearray(10))
    session.empty(1 << 20)


def one_with_a_descriptor() -> None:
    session = pscompy.Session()
    session.fileno()
    session.arm()


def one_of_asyncio() -> None:
    async def use() -> None:
        world = pscompy.World()
        request = world.isend(b"x", dest=0)
        assert await world.irecv() == b"x"
        await request

    asyncio.run(use())


KINDS = (
    *(a_session, one_that_listens, one_that_awaits_a_connection, two_that_are_connected),
    *(one_whose_handlers_refer_to_it, one_that_calls_actions, a_world, one_with_endpoints),
    *(one_with_memory, one_with_a_descriptor, one_of_asyncio, one_with_a_dropped_request),
    one_whose_handler_refers_to_its_memory,
)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left(kind):
    kind()

    def settled() -> bool:
        gc.collect()
        return not process.sessions()

    expect_soon(settled)
    before = own_descriptors(), threading.active_count()
    for _ in range(TIMES):
        kind()
        expect_soon(settled)
    try:
        expect_soon(lambda: (own_descriptors(), threading.active_count()) <= before)
    except AssertionError:
        pytest.fail(f"{before} became {left()}")


def left() -> tuple[int, list[str], list[str]]:
    """The descriptors, threads and files of this process."""
    names = [it.name for it in threading.enumerate()]
    files = [str(it.readlink()) for it in Path("/proc/self/fd").iterdir() if it.is_symlink()]
    return own_descriptors(), names, files


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_nothing_is_left_of_two_processes(start, transport):
    """Each drops its session; the last messages need not arrive."""
    puppet = start(ONLY[transport])
    before = own_descriptors(), threading.active_count()
    for _ in range(5):
        address = puppet(listen_anew, ONLY[transport])
        connection = pscompy.Session(config=ONLY[transport]).connect(address)
        connection.send(b"x")
        puppet(lambda here: here.taken.accept(60).recv())
        del connection
        gc.collect()
        expect_soon(lambda: not process.sessions())
    puppet(lambda here: vars(here).pop("taken"))
    expect_soon(lambda: (own_descriptors(), threading.active_count()) <= before)
    expect_soon(lambda: puppet(count_sessions) == 1)


def listen_anew(here, config):
    here.taken = pscompy.Session(config=config).listen("127.0.0.1")
    return here.taken.address


def count_sessions(here):
    gc.collect()
    return len(process.sessions())


def test_a_closed_one_needs_no_collector():
    """The thread that drives actions closes its descriptors itself."""

    def calls() -> None:
        with pscompy.World() as world:
            world.call(0, nothing)

    calls()
    gc.collect()
    before = own_descriptors()
    gc.disable()
    try:
        calls()
        expect_soon(lambda: own_descriptors() <= before)
    finally:
        gc.enable()


# ---- peers ----


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_peer_is_told(start, transport):
    puppet = start(ONLY[transport])
    address = puppet(listen_anew, ONLY[transport])
    connection = pscompy.Session(config=ONLY[transport]).connect(address)
    connection.send(b"x")
    posted = connection.irecv()
    reference = weakref.ref(connection)
    puppet(accept_one)
    del connection, posted
    gc.collect()
    assert puppet(learns_of_the_end)
    expect_soon(lambda: collected(reference))


def learns_of_the_end(here):
    try:
        here.one.recv(timeout=60)
    except (pscompy.Closed, pscompy.PeerLost):
        return True


def accept_one(here):
    here.one = here.taken.accept(60)
    return bytes(here.one.recv())


# ---- what keeps it open ----


def connection_of(session):
    return session.connect(session.listen("127.0.0.1").address)


KEEPERS = {
    "a connection": connection_of,
    "a connection that was accepted": lambda session: accepted(session)[1],
    "a request": lambda session: connection_of(session).irecv(),
    "a listener": lambda session: session.listen("127.0.0.1"),
    "a pending accept": lambda session: session.listen("127.0.0.1").iaccept(),
    "a region": lambda session: session.register(bytearray(10)),
    "a pin": lambda session: session.pin(bytearray(10)),
    "a block": lambda session: session.allocate(1 << 20),
    "an array": lambda session: session.empty(1 << 20)[5:],
    "an array that was received": lambda session: received(session),
    "a message": lambda session: probed(session),
    "a future": lambda session: connection_of(session).submit(nothing),
}


def accepted(session):
    sock = session.listen("127.0.0.1")
    connection = session.connect(sock.address)
    connection.open(BOUND)
    return connection, sock.accept(BOUND)


def received(session):
    connection, other = accepted(session)
    sent = connection.isend_obj(np.zeros(1 << 20))
    array = other.recv_obj()
    sent.wait(BOUND)
    return array


def probed(session):
    connection, other = accepted(session)
    connection.send(b"x")
    return other.mprobe()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", KEEPERS)
def test_it_is_kept_by(name):
    session = pscompy.Session()
    reference = weakref.ref(session)
    kept = KEEPERS[name](session)
    del session
    for _ in range(3):
        gc.collect()
    assert reference() is not None
    assert not reference()._closing
    assert kept is not None
    del kept
    expect_soon(lambda: collected(reference))
    expect_soon(lambda: not process.sessions())


WORLD_KEEPERS = {
    "its connection": lambda world: world[0],
    "a dup": lambda world: world.dup(),
    "an endpoint": lambda world: world.endpoints(2)[1],
    "a request of an endpoint": lambda world: world.endpoints(2)[1].irecv(),
    "its session": lambda world: world.session,
    "a barrier": lambda world: world.ibarrier(),
    "an array": lambda world: world.empty(1 << 20),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", WORLD_KEEPERS)
def test_a_world_is_kept_by(name):
    world = pscompy.World()
    reference = weakref.ref(world.session)
    kept = WORLD_KEEPERS[name](world)
    del world
    gc.collect()
    assert reference() is not None
    assert not reference()._closing
    del kept
    expect_soon(lambda: collected(reference))
    expect_soon(lambda: not process.sessions())


def drops_communicators_of_closing_worlds():
    for _ in range(20):
        world = pscompy.World()
        made = [world.dup() for _ in range(20)]
        for communicator in made:
            communicator.barrier()
        del communicator
        closing = threading.Thread(target=world.close)
        closing.start()
        while made:
            made.pop()
        gc.collect()
        closing.join()
    print("dropped")


def test_communicators_are_dropped_while_another_thread_closes_their_world():
    text = program(drops_communicators_of_closing_worlds)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("dropped\n", 0), done.stderr
