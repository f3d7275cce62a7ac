"""A process that runs out of descriptors raises an error that says so, refuses peers with that
reason, and works again when descriptors are free.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest
from puppets import BOUND, ONLY, listen, own_descriptors

import pscompy
from tests.program import program
from tests.waiting import expect_soon

# The longer test with many peers sets this variable; 2000 peers need a limit of 8192.
PEERS = int(os.environ.get("PSCOMPY_TEST_PEERS", "60"))
COST = {"shm": 3, "tcp": 2}  # descriptors that a connection uses on each side


def raised(call, *arguments):
    """Returns the text of the ConnectError that `call` raises, or None."""
    try:
        call(*arguments)
    except pscompy.ConnectError as error:
        return str(error)
    return None


def open_with(limit):
    import os
    import resource

    import pscompy

    vars(pscompy.Session), vars(pscompy.OutOfDescriptors)  # imported before the limit
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
    for _ in range(3):
        try:
            pscompy.Session()
        except pscompy.OutOfDescriptors as error:
            text = str(error)
    assert isinstance(pscompy.OutOfDescriptors(), OSError)
    print(text, os.open("/dev/null", os.O_RDONLY))


@pytest.mark.parametrize("limit", [12, 24])
def test_a_program_with_too_few_for_a_session(limit):
    """Opening a session fails with OutOfDescriptors and leaves nothing open."""
    done = subprocess.run(
        [sys.executable, "-c", program(open_with, limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(rf"may have {limit} in all .*ulimit -n", done.stdout)
    assert int(done.stdout.split()[-1]) < 6  # no descriptor of the session was left open
    assert done.stderr == ""


def connect_again(here, address):
    here.d = here.session.connect(address)
    here.d.send(b"x")


def test_the_cost_of_a_connection(connect, join, transport):
    """A connection uses as many descriptors as docs/transports.md says."""
    link = connect(transport)

    def used():
        return link.peer(lambda here: own_descriptors()), own_descriptors()

    before = used()
    second = link.session.listen("127.0.0.1")
    own = used()[1] - before[1]
    link.peer(connect_again, address=second.address)
    accepted = second.accept(BOUND)
    assert bytes(accepted.recv(timeout=BOUND)) == b"x"
    cost = COST[transport]
    expect_soon(lambda: used() == (before[0] + cost, before[1] + own + cost))


def listen_with_limit(here, limit):
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    here.kept = []
    address = listen(here)
    threading.Thread(target=lambda: here.kept.extend(here.sock), daemon=True).start()
    return address


def free_descriptors(here):
    for fd in here.filling:
        os.close(fd)


def test_without_any_descriptor_causes_are_told_at_once(start, open_session, transport):
    """Both sides report the cause at once; when descriptors are free again, connections succeed."""
    full = start({**ONLY[transport], "RETRY": 0})
    address = full(listen_with_limit, limit=256)
    session = open_session(**ONLY[transport], RETRY=0)
    other = session.listen("127.0.0.1")
    assert full(fill) > 100

    refused = raised(session.connect(address).open, BOUND)
    assert re.search(r"no descriptor left.*RLIMIT_NOFILE there.*ulimit -n", refused)
    with pytest.raises(pscompy.ConnectError, match=r"may have 256 \(RLIMIT_NOFILE.*ulimit -n"):
        full(lambda here, other: here.session.connect(other).open(60), other=other.address)
    with pytest.raises(pscompy.ConnectError, match=r"cannot listen.*RLIMIT_NOFILE"):
        full(lambda here: here.session.listen("127.0.0.1"))
    with pytest.raises(pscompy.OutOfDescriptors):
        full(lambda here: pscompy.Session())

    full(free_descriptors)
    with session.connect(address) as c:
        c.open(BOUND)
    full(lambda here, other: here.session.connect(other).send(b"x"), other=other.address)
    assert bytes(other.accept(BOUND).recv(timeout=BOUND)) == b"x"


def fill(here):
    here.filling = []
    with contextlib.suppress(OSError):
        while True:
            here.filling.append(os.open("/dev/null", os.O_RDONLY))
    return len(here.filling)


def test_a_session_without_any_descriptor_closes(start):
    full = start({})
    full(listen_with_limit, limit=256)
    full(fill)
    full(lambda here: here.session.close())
    assert full(lambda here: 1 + 1) == 2  # the process still answers


def test_peers_beyond_the_limit_are_turned_away(start, open_session, transport):
    """Every refused peer gets the reason; peers that connect after others have left are
    accepted."""
    room = PEERS if PEERS <= 60 else PEERS // 4
    server = start(ONLY[transport])
    address = server(listen_with_limit, limit=room * COST[transport])
    session = open_session(**ONLY[transport], RETRY=0)
    served, reasons = [], []
    for _ in range(room + 10):
        connection = session.connect(address)
        reason = raised(connection.open, BOUND)
        (served if reason is None else reasons).append(reason or connection)
    assert len(served) > room // 4
    assert len(reasons) > 10
    assert all("RLIMIT_NOFILE" in reason for reason in reasons)

    before = len(served)
    for connection in served[: before // 2]:
        connection.close()
    # retries until the server has noticed that peers have left
    again = open_session(**ONLY[transport])
    for _ in range(before // 2):
        again.connect(address).send(b"x", timeout=BOUND)
    expect_soon(lambda: server(lambda here: len(here.kept)) >= before + before // 2)


def check_kept(here):
    for connection in here.kept:
        assert connection.recv(timeout=60) == b"x"


def connect_many(here, address, count):
    made = [here.session.connect(address) for _ in range(count)]
    for connection in made:
        connection.send(b"x", timeout=250)


def test_many_peers_of_one_listener(start, transport):
    server = start(ONLY[transport])
    address = server(listen_with_limit, limit=PEERS * 4 + 64)
    callers = [start({**ONLY[transport]}) for _ in range(4)]
    for caller in callers:
        caller.begin(
            connect_many,
            address=address,
            count=PEERS // len(callers),
        )
    for caller in callers:
        caller.result(timeout=280)
    expect_soon(lambda: server(lambda here: len(here.kept)) == PEERS // len(callers) * len(callers))
    server(check_kept)


def test_strangers_leave_descriptors_to_peers(start, open_session):
    """64 strangers connect to a listener whose limit is 60 descriptors; peers can connect while
    the strangers stay and after they have left."""
    server = start({})
    address = server(listen_with_limit, limit=60)
    session = open_session()
    place = re.search(r"//(.*):(\d+)/", address)
    with ExitStack() as strangers:
        for _ in range(64):
            stranger = socket.create_connection((place[1], int(place[2])), BOUND)
            strangers.enter_context(stranger)
        with session.connect(address) as c:
            c.send(b"x", timeout=BOUND)
    with session.connect(address) as c:
        c.send(b"x", timeout=BOUND)
        assert c.state is pscompy.ConnectionState.UP
