"""Processes made by fork: the session they inherit is unusable and does no harm to the parent's."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys

import pytest
from puppets import BOUND, ONLY, check_echo

import pscompy

USES = {
    "send": "c.send(b'x')",
    "recv": "c.recv(timeout=1)",
    "isend": "c.isend(b'x')",
    "irecv": "c.irecv()",
    "probe": "c.probe(timeout=1)",
    "iprobe": "c.iprobe()",
    "a request": "posted.wait(1)",
    "listen": "session.listen()",
    "connect": "session.connect(sock.address)",
    "accept": "sock.accept(timeout=1)",
    "open": "session.connect(sock.address).open(1)",
    "stats": "session.stats",
    "register": "session.register(bytearray(8))",
    "on_message": "session.on_message(1, print)",
    "progress": "session.progress()",
    "fileno": "session.fileno()",
    "arm": "session.arm()",
    "am_send": "c.am_send(1, b'', b'')",
}

IN_CHILD = """
def in_child(work):
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
"""


@pytest.fixture
def link(connect, transport):
    """A link whose puppet has the functions that fork."""
    link = connect(transport)
    link.peer(IN_CHILD)
    link.peer("posted = c.irecv(tag=99); sock = session.listen('127.0.0.1')")
    return link


@pytest.mark.parametrize("use", USES)
def test_every_use_raises_in_the_child(link, use):
    code = link.peer(
        """
        def work():
            try:
                eval(use)
            except pscompy.Closed as error:
                return 0 if "fork" in str(error) else 2
            return 3
        in_child(work)
        """,
        use=USES[use],
    )
    assert code == 0
    check_echo(link)


@pytest.mark.parametrize(
    "end",
    [
        "session.close()",
        "c.close()",
        "sock.close()",
        "del c, session",
        "posted.cancel()",
        "repr((session, c, sock, posted, c.state))",
    ],
)
def test_ends_in_the_child_touch_nothing(link, end):
    code = link.peer(
        """
        def work():
            try:
                exec(end, globals())
            except pscompy.Closed:
                pass
            gc.collect()
            return 0
        in_child(work)
        """,
        end=end,
    )
    assert code == 0
    check_echo(link)
    link.c.send(b"posted before the fork", tag=99)
    assert link.peer("bytes(posted.wait(60))") == b"posted before the fork"


def test_the_childs_exit_runs_and_the_parent_goes_on(link):
    """The child runs a whole interpreter exit with its atexit handlers, not os._exit."""
    code = link.peer(
        """
        import multiprocessing
        child = multiprocessing.get_context("fork").Process(target=sys.exit, args=(7,))
        child.start()
        child.join(60)
        child.exitcode
        """
    )
    assert code == 7
    for _ in range(50):
        check_echo(link)


def test_a_new_session_works_in_the_child(link):
    link.peer.begin(
        """
        def work():
            with pscompy.Session(config=config) as mine:
                d = mine.connect(address)
                d.send(b"hello from the child")
                return 0 if d.recv() == b"welcome" else 2
        in_child(work)
        """,
        address=link.sock.address,
    )
    child = link.sock.accept(timeout=BOUND)
    assert child.recv(timeout=BOUND) == b"hello from the child"
    child.send(b"welcome")
    assert link.peer.result() == 0
    check_echo(link)


def test_fork_while_messages_are_in_flight(link):
    """Large messages of the parent arrive complete although it forks meanwhile."""
    link.peer.begin(
        """
        data = bytes(range(256)) * 40_000
        sends = [c.isend(data) for _ in range(4)]
        codes = [in_child(lambda: 0) for _ in range(5)]
        pscompy.wait_all(sends)
        codes
        """
    )
    for _ in range(4):
        assert link.c.recv(timeout=BOUND) == bytes(range(256)) * 40_000
    assert link.peer.result() == [0] * 5
    check_echo(link)


def test_fork_from_a_thread_while_another_receives(link):
    link.peer.begin(
        """
        codes = []
        forker = threading.Thread(
            target=lambda: codes.extend(in_child(lambda: 0) for _ in range(20))
        )
        forker.start()
        got = [int.from_bytes(c.recv(), "little") for _ in range(2000)]
        forker.join()
        codes == [0] * 20 and got == list(range(2000))
        """
    )
    for i in range(2000):
        link.c.send(i.to_bytes(4, "little"))
    assert link.peer.result()


def test_the_peer_survives_a_child_that_outlives_its_parent(link):
    """The peer notices the parent's death although the child holds copies of its descriptors."""
    child = link.peer(
        """
        def linger():
            os.close(0); os.close(1)
            signal.alarm(60)
            signal.pause()
        pid = os.fork()
        if not pid:
            linger()
        pid
        """
    )
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


def test_descriptors_are_closed_by_exec(link):
    """A program that the process executes inherits none of the session's descriptors."""
    listing = (
        "import os; print([os.readlink(f'/proc/self/fd/{f}') for f in os.listdir('/proc/self/fd')"
    )
    listing += " if os.path.exists(f'/proc/self/fd/{f}')])"

    def seen():
        done = subprocess.run(
            [sys.executable, "-c", listing],
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
