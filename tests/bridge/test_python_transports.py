"""Faulty transports in Python, strangers that connect to them, and the end of their pumps."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from pscompy import ConnectError, PeerLost, Session
from tests.program import program
from tests.waiting import expect_soon

PLUGIN = """
import os, secrets, socket, time
from pathlib import Path
from pscompy.plugin import PythonTransport, Transport, hookimpl

class Frail(PythonTransport):
    def open(self, settings):
        {open}
        address = b"\\0pscompy-frail-" + secrets.token_hex(8).encode()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.setblocking(False)
        self.listener.bind(address)
        self.listener.listen()
        self.watch(self.listener, self.accept)
        return address

    def accept(self):
        {accept}
        peer = self.listener.accept()[0]
        self.adopt(self.accepted(), peer)

    def adopt(self, link, peer):
        peer.setblocking(False)
        link.state = peer
        self.watch(peer, lambda: self.read(link), link)

    def read(self, link):
        data = link.state.recv(self.max_frame)
        {read}
        self.received(link, data)

    def connect(self, link, address):
        {connect}
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.adopt(link, peer)
        peer.connect(address)

    def send(self, link, data):
        {send}
        return link.state.send(data, socket.MSG_NOSIGNAL)

    def disconnect(self, link):
        if link.state:
            link.state.close()

    def close(self):
        self.listener.close()

@hookimpl
def pscompy_transport():
    return Transport("frail", 50, python=Frail)
"""
BOUND = 60


class Frail:
    """Sessions over the transport above, which fails where a test tells it to."""

    def __init__(self, folder, **faults):
        code = dict.fromkeys(("open", "accept", "read", "connect", "send"), "pass") | faults
        (folder / "frail.py").write_text(PLUGIN.format(**code))
        self.config = {"PLUGINDIR": str(folder), "TCP": 0, "SHM": 0}
        self.sessions = []

    def session(self, **config):
        self.sessions.append(Session(config=self.config | config))
        return self.sessions[-1]

    def pair(self):
        """Two ends of a connection that is up."""
        near, far = self.session(), self.session()
        near_socket = near.listen("127.0.0.1")
        c = far.connect(near_socket.address)
        c.open(timeout=BOUND)
        return c, near_socket.accept(timeout=BOUND)

    def close(self):
        for session in self.sessions:
            session.close()


@pytest.fixture
def frail(tmp_path):
    made = []

    def make(**faults):
        made.append(Frail(tmp_path, **faults))
        return made[-1]

    yield make
    for it in made:
        it.close()


def pumps():
    return [thread for thread in threading.enumerate() if thread.name == "pscompy-frail"]


def test_it_carries_messages_and_its_pumps_end_with_their_sessions(frail):
    it = frail()
    near, far = it.pair()
    near.send(b"there", tag=1)
    assert far.recv(timeout=BOUND) == b"there"
    assert (near.transport, len(pumps())) == ("frail", 2)
    it.close()
    assert pumps() == []


def test_one_that_does_not_open_says_why(frail):
    it = frail(open="raise OSError('no such fabric')")
    assert it.session().transports["frail"] == "no such fabric"
    assert pumps() == []


OPENED = "self.listener = open(os.devnull); "


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(3)", "open() raised SystemExit: 3"),
        ("settings['BACKLOG']", "open() raised KeyError: 'BACKLOG'"),
        ("assert False", "open() raised AssertionError"),
        (OPENED + "return None", "open() returned NoneType, not bytes"),
        (OPENED + "return 'here'", "open() returned str, not bytes"),
        (OPENED + "return bytes(1001)", "open() returned an address of 1001 bytes, at most 1000"),
        ("self.latency = '50us'", "latency is '50us', not a number of seconds above 0"),
        ("self.latency = float('nan')", "latency is nan, not a number of seconds above 0"),
        ("self.bandwidth = 0", "bandwidth is 0, not a number of bytes per second above 0"),
        ("self.max_frame = 100", "max_frame is 100, at least 2048 is needed"),
        ("self.max_frame = 65536.0", "max_frame is 65536.0, not a whole number"),
        ("self.max_frame = 1 << 40", "max_frame is 1099511627776, at most 4294967295"),
        ("self.queue = 0", "queue is 0, at least 1 is needed"),
        ("self.stream = 'no'", "stream is 'no', not True or False"),
        ("self.node_only = 'yes'", "node_only is 'yes', not True or False"),
    ],
)
def test_a_slip_in_open_is_named_and_keeps_no_other_from_working(frail, caplog, code, reason):
    it = frail(open=code)
    transports = it.session(TCP=1).transports
    assert transports["frail"].startswith(reason)
    assert transports["tcp"] == ""
    assert pumps() == []
    assert not caplog.records


def test_an_exit_in_the_constructor_is_a_reason(frail):
    it = frail(open="pass\n    def __init__(self): raise SystemExit(3)\n    def begin(self):")
    assert it.session(TCP=1).transports["frail"] == "Frail() raised SystemExit: 3"


def test_a_slip_in_send_is_named(frail, caplog):
    """In the log: the connection may fail for what the other end has noticed of it."""
    it = frail(send="link.state.send(data); return")
    address = it.session().listen("127.0.0.1").address
    with pytest.raises(ConnectError):
        it.session().connect(address).open(timeout=BOUND)
    expect_soon(lambda: "send() returned None, not a number of bytes" in caplog.text)


def test_one_that_does_not_connect_says_why(frail):
    it = frail(connect="raise OSError('the cable is cut')")
    address = it.session().listen("127.0.0.1").address
    with pytest.raises(ConnectError) as caught:
        it.session().connect(address).open(timeout=BOUND)
    assert "the cable is cut" in caught.value.candidates["frail"]


def test_another_transport_takes_over_where_it_does_not_connect(frail):
    it = frail(connect="raise OSError('the cable is cut')")
    near = it.session(TCP=1).listen("127.0.0.1")
    c = it.session(TCP=1).connect(near.address)
    c.open(timeout=BOUND)
    assert c.transport == "tcp"
    assert "the cable is cut" in str(c.explain())


class Silence:
    """Code for a method of the transport that does not answer, until the test is over."""

    def __init__(self, folder):
        self.over = folder / "over"

    @property
    def blocks(self):
        return f"any(Path({str(self.over)!r}).exists() or time.sleep(0.01) for _ in iter(int, 1))"


SWALLOWED = {"send": "return len(data)", "read": "return", "accept": "return time.sleep(0.01)"}


@pytest.fixture
def silence(tmp_path):
    made = Silence(tmp_path)
    yield made
    made.over.touch()


@pytest.mark.parametrize("where", ["connect", "send", "read", "accept"])
def test_where_a_transport_blocks_the_next_one_connects(frail, silence, caplog, where):
    it = frail(**{where: silence.blocks})
    config = {"SHM": 1, "FRAIL": 2, "CANDIDATE_TIMEOUT": "1"}
    near = it.session(**config).listen("127.0.0.1")
    c = it.session(**config).connect(near.address)
    with caplog.at_level(logging.WARNING, "pscompy.plugin"):
        c.open(timeout=BOUND)
        c.send(b"well")
        assert near.accept(timeout=BOUND).recv(timeout=BOUND) == b"well"
        assert c.transport == "shm"
        reason = c.explain().reasons["frail"]
        assert "PSP_CANDIDATE_TIMEOUT" in reason
        assert f"{where}() (" in reason
        it.close()  # although the pump is blocked
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "the transport frail blocks" in line]) == 1


@pytest.mark.parametrize("where", SWALLOWED)
def test_where_a_transport_swallows_frames_the_next_one_connects(frail, where):
    it = frail(**{where: SWALLOWED[where]})
    config = {"SHM": 1, "FRAIL": 2, "CANDIDATE_TIMEOUT": "1"}
    near = it.session(**config).listen("127.0.0.1")
    c = it.session(**config).connect(near.address)
    c.open(timeout=BOUND)
    assert c.transport == "shm"
    assert "PSP_CANDIDATE_TIMEOUT" in c.explain().reasons["frail"]


def test_one_that_blocks_later_is_named_in_the_log(frail, silence, tmp_path, caplog):
    now = tmp_path / "now"
    near, far = frail(send=f"if Path({str(now)!r}).exists(): {silence.blocks}").pair()
    with caplog.at_level(logging.WARNING, "pscompy.plugin"):
        now.touch()
        near.isend(b"x")
        expect_soon(lambda: "the transport frail blocks: its send() (" in caplog.text)
    silence.over.touch()
    assert far.recv(timeout=BOUND) == b"x"


def test_with_no_other_transport_the_one_that_is_silent_is_named(frail):
    it = frail(send="return len(data)")
    near = it.session(CANDIDATE_TIMEOUT="1").listen("127.0.0.1")
    with pytest.raises(ConnectError, match="frail: did not come up in time"):
        it.session(CANDIDATE_TIMEOUT="1").connect(near.address).open(timeout=BOUND)


def test_one_whose_open_blocks_is_left_out(frail, silence, tmp_path):
    it = frail(open=silence.blocks)
    session = it.session(SHM=1, CANDIDATE_TIMEOUT="0.7")
    reason = session.transports["frail"]
    assert "did not open in 0.7 s" in reason
    assert "open() (" in reason
    assert session.transports["shm"] == ""
    command = [sys.executable, "-m", "pscompy", "info"]
    environ = {**os.environ, "PSP_PLUGINDIR": str(tmp_path), "PSP_CANDIDATE_TIMEOUT": "0.7"}
    told = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=BOUND)
    assert "did not open in 0.7 s" in told.stdout


@pytest.mark.parametrize("where", ["send", "read"])
@pytest.mark.parametrize("error", ["OSError('broken')", "ZeroDivisionError('a mistake')"])
def test_an_exception_about_a_link_ends_that_link(frail, tmp_path, caplog, where, error):
    now = tmp_path / "now"
    near, far = frail(**{where: f"if Path({str(now)!r}).exists(): raise {error}"}).pair()
    with caplog.at_level(logging.ERROR, "pscompy.plugin"):
        now.touch()
        near.isend(b"x" * 100)
        for c in (near, far):
            with pytest.raises(PeerLost):
                c.recv(timeout=BOUND)
    mistakes = [record for record in caplog.records if "error in the" in record.getMessage()]
    assert bool(mistakes) == ("mistake" in error)


@pytest.mark.parametrize("error", ["ZeroDivisionError", "SystemExit"])
def test_a_mistake_that_concerns_no_link_ends_the_transport_and_nothing_else(frail, caplog, error):
    it = frail(accept=f"raise {error}('a mistake')")
    near = it.session(TCP=1).listen("127.0.0.1")
    with caplog.at_level(logging.ERROR, "pscompy.plugin"):
        for _ in range(2):
            c = it.session(TCP=1).connect(near.address)
            c.open(timeout=BOUND)
            assert c.transport == "tcp"
    broken = [record for record in caplog.records if "has failed" in record.getMessage()]
    assert len(broken) == 1
    assert f"{error}: a mistake" in broken[0].getMessage()
    assert "frail" in c.explain().reasons  # the reason of either side, whichever is reported first


PILED = """if self.bad and b"piled" in bytes(data):
            self.held += bytes(data)
            return len(data)
        if self.bad and b"last" in bytes(data):
            link.state.send(self.held + bytes(data) + self.bad)
            self.bad = b""
            return len(data)"""
SMALL = """self.stream, self.queue = True, 1
        self.held, self.bad = b"", bytes([1, 0, 0, 0, 120])"""


def test_a_bad_frame_behind_a_backlog_ends_its_link_and_no_other(frail):
    it = frail(open=SMALL, send=PILED)
    far, near = it.pair()
    there, here = it.sessions
    for _ in range(8):
        far.send(b"piled", timeout=BOUND)
    far.send(b"last", timeout=BOUND)
    while near.recv(timeout=BOUND) != b"last":
        pass
    c = here.connect(there.listen("127.0.0.1").address)
    c.open(timeout=BOUND)
    assert c.transport == "frail"


def test_a_shortage_of_descriptors_delays_an_accept_and_ends_nothing(frail, tmp_path, caplog):
    short = tmp_path / "short"
    short.touch()
    it = frail(accept=f"if Path({str(short)!r}).exists(): raise OSError(24, 'too many')")
    listening = it.session().listen("127.0.0.1")
    c = it.session().connect(listening.address)
    with caplog.at_level(logging.ERROR, "pscompy.plugin"):
        sent = c.isend(b"after all")
        expect_soon(lambda: "frail can accept no peer now: too many" in caplog.text)
        short.unlink()
        sent.wait(timeout=BOUND)
    assert listening.accept(timeout=BOUND).recv(timeout=BOUND) == b"after all"
    assert len(caplog.records) == 1


def frail_addresses():
    """The listening sockets of the transport in this process, from the system's list."""
    own = {str(link) for link in links("/proc/self/fd")}
    found = []
    for line in Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]:
        inode, *name = line.split()[6:]
        if f"socket:[{inode}]" in own and name and name[0].startswith("@pscompy-frail-"):
            found.append("\0" + name[0].removeprefix("@"))
    return found


def links(folder):
    for path in Path(folder).iterdir():
        try:
            yield path.readlink()
        except FileNotFoundError:  # the descriptor of the listing itself
            continue


def test_strangers_do_no_harm(frail):
    near, far = frail().pair()
    callers = []
    for address in frail_addresses():
        for data in (b"", b"x", bytes(32), b"pscompy1" + bytes(24), bytes(60_000)):
            caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                caller.connect(address)
                caller.send(data)
            except OSError:  # it was closed already
                pass
            callers.append(caller)
    assert callers
    near.send(b"still there")
    assert far.recv(timeout=BOUND) == b"still there"
    for caller in callers:
        caller.close()


def connected(caller, address):
    """Returns False if the listening socket's queue is full."""
    return caller.connect_ex(address) == 0


def test_many_callers_do_not_keep_others_out(frail):
    it = frail()
    near = it.session()
    listening = near.listen("127.0.0.1")
    callers = []
    for address in frail_addresses():
        for _ in range(100):
            caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            caller.setblocking(False)
            expect_soon(partial(connected, caller, address))
            callers.append(caller)
    c = it.session().connect(listening.address)
    c.open(timeout=BOUND)
    assert c.transport == "frail"
    for caller in callers:
        caller.close()


def open_everything(config, end, address=None):
    import sys

    import __main__
    from pscompy import Session

    a, b = Session(config=config), Session(config=config)
    c = a.connect(address or b.listen("127.0.0.1").address)
    c.open(timeout=60)
    __main__.kept = a, b, c, c.irecv()
    print(c.transport, flush=True)
    if end == "exit":
        sys.exit(3)
    if end == "error":
        raise KeyError
    if end == "stay":
        sys.stdin.read()


@pytest.mark.parametrize(("end", "code"), [("", 0), ("exit", 3), ("error", 1)])
def test_an_interpreter_exits_with_everything_open(frail, end, code):
    text = program(open_everything, frail().config, end)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=BOUND
    )
    assert done.stdout == "frail\n", done.stderr
    assert done.returncode == code
    assert "Fatal" not in done.stderr


def test_a_peer_without_its_process_is_lost(frail):
    it = frail()
    near = it.session().listen("127.0.0.1")
    text = program(open_everything, it.config, "stay", near.address)
    peer = subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        c = near.accept(timeout=BOUND)
        waiting = c.irecv()
        peer.kill()
        with pytest.raises(PeerLost):
            waiting.wait(timeout=BOUND)
    finally:
        peer.kill()
        peer.communicate()
