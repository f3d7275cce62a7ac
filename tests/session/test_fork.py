"""Processes made by fork: the session they inherit is unusable and does no harm to the parent's."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading

import pytest
from puppets import BOUND, ONLY, check_echo

import pscompy
from tests.program import program

USES = {
    "send": lambda here: here.c.send(b"x"),
    "recv": lambda here: here.c.recv(timeout=1),
    "isend": lambda here: here.c.isend(b"x"),
    "irecv": lambda here: here.c.irecv(),
    "probe": lambda here: here.c.probe(timeout=1),
    "iprobe": lambda here: here.c.iprobe(),
    "a request": lambda here: here.posted.wait(1),
    "listen": lambda here: here.session.listen(),
    "connect": lambda here: here.session.connect(here.sock.address),
    "accept": lambda here: here.sock.accept(timeout=1),
    "open": lambda here: here.session.connect(here.sock.address).open(1),
    "stats": lambda here: here.session.stats,
    "register": lambda here: here.session.register(bytearray(8)),
    "on_message": lambda here: here.session.on_message(1, print),
    "progress": lambda here: here.session.progress(),
    "fileno": lambda here: here.session.fileno(),
    "arm": lambda here: here.session.arm(),
    "am_send": lambda here: here.c.am_send(1, b"", b""),
}


def in_child(work):
    """Call `work` in a child, which ends with the value as its exit code; returns that code."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work()
        except BaseException as error:
            print("in the child:", repr(error), file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def post_and_listen(here):
    here.posted = here.c.irecv(tag=99)
    here.sock = here.session.listen("127.0.0.1")


@pytest.fixture
def link(connect, transport):
    """A link whose puppet has posted a receive and listens."""
    link = connect(transport)
    link.peer(post_and_listen)
    return link


def use_in_child(here, use):
    def work():
        try:
            use(here)
        except pscompy.Closed as error:
            return 0 if "fork" in str(error) else 2
        return 3

    return in_child(work)


@pytest.mark.parametrize("use", USES)
def test_every_use_raises_in_the_child(link, use):
    code = link.peer(use_in_child, USES[use])
    assert code == 0
    check_echo(link)


def end_in_child(here, end):
    def work():
        with contextlib.suppress(pscompy.Closed):
            end(here)
        gc.collect()
        return 0

    return in_child(work)


def drop(here):
    del here.c, here.session


ENDS = {
    "session.close": lambda here: here.session.close(),
    "c.close": lambda here: here.c.close(),
    "sock.close": lambda here: here.sock.close(),
    "drop": drop,
    "posted.cancel": lambda here: here.posted.cancel(),
    "repr": lambda here: repr((here.session, here.c, here.sock, here.posted, here.c.state)),
}


@pytest.mark.parametrize("end", ENDS)
def test_ends_in_the_child_touch_nothing(link, end):
    code = link.peer(end_in_child, ENDS[end])
    assert code == 0
    check_echo(link)
    link.c.send(b"posted before the fork", tag=99)
    assert link.peer(lambda here: bytes(here.posted.wait(60))) == b"posted before the fork"


def exit_code_of_child(here):
    child = multiprocessing.get_context("fork").Process(target=sys.exit, args=(7,))
    child.start()
    child.join(60)
    return child.exitcode


def test_the_childs_exit_runs_and_the_parent_goes_on(link):
    """The child runs a whole interpreter exit with its atexit handlers, not os._exit."""
    code = link.peer(exit_code_of_child)
    assert code == 7
    for _ in range(50):
        check_echo(link)


def connect_in_child(here, address):
    def work():
        with pscompy.Session(config=here.config) as mine:
            d = mine.connect(address)
            d.send(b"hello from the child")
            return 0 if d.recv() == b"welcome" else 2

    return in_child(work)


def test_a_new_session_works_in_the_child(link):
    link.peer.begin(
        connect_in_child,
        address=link.sock.address,
    )
    child = link.sock.accept(timeout=BOUND)
    assert child.recv(timeout=BOUND) == b"hello from the child"
    child.send(b"welcome")
    assert link.peer.result() == 0
    check_echo(link)


def fork_while_sending(here):
    data = bytes(range(256)) * 40_000
    sends = [here.c.isend(data) for _ in range(4)]
    codes = [in_child(lambda: 0) for _ in range(5)]
    pscompy.wait_all(sends)
    return codes


def test_fork_while_messages_are_in_flight(link):
    """Large messages of the parent arrive complete although it forks meanwhile."""
    link.peer.begin(fork_while_sending)
    for _ in range(4):
        assert link.c.recv(timeout=BOUND) == bytes(range(256)) * 40_000
    assert link.peer.result() == [0] * 5
    check_echo(link)


def fork_while_receiving(here):
    codes = []
    forker = threading.Thread(target=lambda: codes.extend(in_child(lambda: 0) for _ in range(20)))
    forker.start()
    got = [int.from_bytes(here.c.recv(), "little") for _ in range(2000)]
    forker.join()
    return codes == [0] * 20 and got == list(range(2000))


def test_fork_from_a_thread_while_another_receives(link):
    link.peer.begin(fork_while_receiving)
    for i in range(2000):
        link.c.send(i.to_bytes(4, "little"))
    assert link.peer.result()


def fork_and_linger(here):
    def linger():
        os.close(0)
        os.close(1)
        signal.alarm(60)
        signal.pause()

    pid = os.fork()
    if not pid:
        linger()
    return pid


def test_the_peer_survives_a_child_that_outlives_its_parent(link):
    """The peer notices the parent's death although the child holds copies of its descriptors."""
    child = link.peer(fork_and_linger)
    try:
        link.peer.kill()
        with pytest.raises(pscompy.PeerLost):
            link.c.recv(timeout=BOUND)
    finally:
        os.kill(child, 9)


def work_with(address, config, queue):
    with pscompy.Session(config=config) as session:
        c = session.connect(address)
        c.send(b"from a worker")
        queue.put(bytes(c.recv()))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(transport, method, open_session):
    session = open_session(**ONLY[transport])
    sock = session.listen("127.0.0.1")
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    arguments = (sock.address, ONLY[transport], queue)
    workers = [context.Process(target=work_with, args=arguments) for _ in range(3)]
    for worker in workers:
        worker.start()
    for _ in workers:
        c = sock.accept(timeout=BOUND)
        assert c.recv(timeout=BOUND) == b"from a worker"
        c.send(b"thanks")
    assert [queue.get() for _ in workers] == [b"thanks"] * 3
    for worker in workers:
        worker.join(BOUND)
        assert worker.exitcode == 0


def list_descriptors():
    import contextlib
    import os

    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            print(os.readlink(f"/proc/self/fd/{fd}"))


def test_descriptors_are_closed_by_exec(link):
    """A program that the process executes inherits none of the session's descriptors."""

    def seen():
        done = subprocess.run(
            [sys.executable, "-c", program(list_descriptors)],
            close_fds=False,
            stdin=subprocess.DEVNULL,  # the stdin of the test run may be anything
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    link.session.fileno()
    names = ("socket:", "eventfd", "eventpoll", "memfd", "timerfd")
    assert not [name for name in names if name in seen()]


def test_a_session_refuses_to_be_pickled(link):
    for thing in (link.session, link.c, link.sock, link.c.irecv()):
        with pytest.raises(TypeError, match=r"address|stays|pickle"):
            pickle.dumps(thing)
