"""A process that runs out of descriptors raises an error that says so, refuses peers with that
reason, and works again when descriptors are free.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest
from puppets import BOUND, ONLY

import pscompy
from tests.waiting import expect_soon

# The longer test with many peers sets this variable; 2000 peers need a limit of 8192.
PEERS = int(os.environ.get("PSCOMPY_TEST_PEERS", "60"))
COST = {"shm": 3, "tcp": 2}  # descriptors that a connection uses on each side

LIMIT = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
sock = session.listen("127.0.0.1")
kept = []
def serve():
    for connection in sock:
        kept.append(connection)
threading.Thread(target=serve, daemon=True).start()
sock.address
"""
FILL = """
filling = []
try:
    while True:
        filling.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
len(filling)
"""


def raised(call, *arguments):
    """Returns the text of the ConnectError that `call` raises, or None."""
    try:
        call(*arguments)
    except pscompy.ConnectError as error:
        return str(error)
    return None


@pytest.mark.parametrize("limit", [12, 24])
def test_a_program_with_too_few_for_a_session(limit):
    """Opening a session fails with OutOfDescriptors and leaves nothing open."""
    program = (
        "import os, resource, sys, pscompy\n"
        "pscompy.Session.__init__, pscompy.OutOfDescriptors\n"
        "limits = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, limits[1]))\n"
        "for _ in range(3):\n"
        "    try: pscompy.Session()\n"
        "    except pscompy.OutOfDescriptors as error: text = str(error)\n"
        "assert isinstance(pscompy.OutOfDescriptors(), OSError)\n"
        "print(text, os.open('/dev/null', os.O_RDONLY))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert re.search(rf"may have {limit} in all .*ulimit -n", done.stdout)
    assert int(done.stdout.split()[-1]) < 6  # no descriptor of the session was left open
    assert done.stderr == ""


def test_the_cost_of_a_connection(connect, join, transport):
    """A connection uses as many descriptors as docs/transports.md says."""
    link = connect(transport)

    def used():
        return link.peer("len(os.listdir('/proc/self/fd'))"), len(os.listdir("/proc/self/fd"))

    before = used()
    second = link.session.listen("127.0.0.1")
    own = used()[1] - before[1]
    link.peer("d = session.connect(address); d.send(b'x')", address=second.address)
    accepted = second.accept(BOUND)
    assert bytes(accepted.recv(timeout=BOUND)) == b"x"
    cost = COST[transport]
    expect_soon(lambda: used() == (before[0] + cost, before[1] + own + cost))


def test_without_any_descriptor_causes_are_told_at_once(start, open_session, transport):
    """Both sides report the cause at once; when descriptors are free again, connections succeed."""
    full = start({**ONLY[transport], "RETRY": 0})
    address = full(LIMIT, limit=256)
    session = open_session(**ONLY[transport], RETRY=0)
    other = session.listen("127.0.0.1")
    assert full(FILL) > 100

    refused = raised(session.connect(address).open, BOUND)
    assert re.search(r"no descriptor left.*RLIMIT_NOFILE there.*ulimit -n", refused)
    text = "session.connect(other).open(60)"
    with pytest.raises(pscompy.ConnectError, match=r"may have 256 \(RLIMIT_NOFILE.*ulimit -n"):
        full(text, other=other.address)
    with pytest.raises(pscompy.ConnectError, match=r"cannot listen.*RLIMIT_NOFILE"):
        full("session.listen('127.0.0.1')")
    with pytest.raises(pscompy.OutOfDescriptors):
        full("pscompy.Session()")

    full("for fd in filling: os.close(fd)")
    with session.connect(address) as c:
        c.open(BOUND)
    full(f"{text[:-9]}.send(b'x')", other=other.address)
    assert bytes(other.accept(BOUND).recv(timeout=BOUND)) == b"x"


def test_a_session_without_any_descriptor_closes(start):
    full = start({})
    full(LIMIT, limit=256)
    full(FILL)
    full("session.close()")
    assert full("1 + 1") == 2  # the process still answers


def test_peers_beyond_the_limit_are_turned_away(start, open_session, transport):
    """Every refused peer gets the reason; peers that connect after others have left are
    accepted."""
    room = PEERS if PEERS <= 60 else PEERS // 4
    server = start(ONLY[transport])
    address = server(LIMIT, limit=room * COST[transport])
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
    expect_soon(lambda: server("len(kept)") >= before + before // 2)


def test_many_peers_of_one_listener(start, transport):
    server = start(ONLY[transport])
    address = server(LIMIT, limit=PEERS * 4 + 64)
    callers = [start({**ONLY[transport]}) for _ in range(4)]
    for caller in callers:
        caller.begin(
            "made = [session.connect(address) for _ in range(count)]\n"
            "for connection in made: connection.send(b'x', timeout=250)\n",
            address=address,
            count=PEERS // len(callers),
        )
    for caller in callers:
        caller.result(timeout=280)
    expect_soon(lambda: server("len(kept)") == PEERS // len(callers) * len(callers))
    server("for connection in kept: assert connection.recv(timeout=60) == b'x'")


def test_strangers_leave_descriptors_to_peers(start, open_session):
    """64 strangers connect to a listener whose limit is 60 descriptors; peers can connect while
    the strangers stay and after they have left."""
    server = start({})
    address = server(LIMIT, limit=60)
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
