"""Messages without a matching receive: memory stays bounded, and wanted messages still arrive.

`credit.h` defines the bound: PSP_UNEXPECTED_MAX for the session plus the window of each
connection. Beyond it senders turn to rendezvous, which costs a record per message.
"""

from __future__ import annotations

import threading

import pytest
from puppets import BOUND, ONLY

from tests.waiting import expect_soon

MIB = 1 << 20
WINDOW = 4 * MIB
SLACK = 16 * MIB  # memory of the allocator and of the rings
LARGE = 256 << 10

FLOOD = """
on_their_way = []
for i in range(count):
    on_their_way.append(c.isend((i.to_bytes(4, "little") + bytes(size))[:size], tag=1))
    while len(on_their_way) > 20_000:
        pscompy.wait_any(on_their_way)
        on_their_way = [send for send in on_their_way if not send.test()]
pscompy.wait_all(on_their_way)
"""

DRAIN = """
message = bytearray(size)
for i in range(count):
    flood.recv(message, tag=1)
    assert message[:4] == i.to_bytes(4, "little")[:size], (i, message[:4])
"""


class Sampler:
    """Samples the resident memory of a puppet in a thread and keeps the peak."""

    def __init__(self, puppet):
        self.puppet, self.before, self.peak = puppet, puppet.resident(), 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._ended.wait(0.02):
            self.peak = max(self.peak, self.puppet.resident())

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._ended.set()
        self._thread.join()

    @property
    def grown(self):
        return self.peak - self.before


@pytest.fixture
def receiver(start, transport):
    """Returns a function that starts a receiving puppet with two connected peers, `flood` and
    `other`; it returns all three."""

    def begin(**config):
        settings = {**ONLY[transport], **config}
        receiver, flooder, other = (start(settings) for _ in range(3))
        address = receiver("sock = session.listen('127.0.0.1'); sock.address")
        flooder.connect(address)
        receiver("flood = sock.accept(60); flood.recv()")
        other.connect(address)
        receiver("other = sock.accept(60); other.recv()")
        return receiver, flooder, other

    return begin


def full(receiver, counter="credits_withheld", least=1, kept=0):
    """Drive progress in `receiver` without receiving, until `counter` reaches `least`, at least
    `kept` messages are unexpected, and no further message has arrived for 0.3 s."""
    receiver(
        """
        def full():
            deadline = time.monotonic() + 50
            while session.stats[counter] < least or session.stats["unexpected"] < kept:
                session.progress()
                assert time.monotonic() < deadline, session.stats
            seen, since = -1, time.monotonic()
            while time.monotonic() < since + 0.3:
                if session.progress() and session.stats["unexpected"] != seen:
                    seen, since = session.stats["unexpected"], time.monotonic()
        full()
        """,
        counter=counter,
        least=least,
        kept=kept,
    )


@pytest.mark.timeout(900)
def test_a_million_messages_while_rendezvous_complete(receiver):
    """Large messages of another peer complete while the flood is held back; then every message
    of the flood is received, in order."""
    count, size = 1_000_000, 1024
    here, flooder, other = receiver(UNEXPECTED_MAX=64 * MIB)
    with Sampler(here) as memory:
        flooder.begin(FLOOD, count=count, size=size)
        full(here, kept=50_000)
        other.begin("for i in range(64): c.send(bytes([i]) * large)", large=LARGE)
        whole = here("sum(other.recv() == bytes([i]) * large for i in range(64))", large=LARGE)
        assert whole == 64
        other.result()
        stats = here("session.stats")
        assert 50_000 <= stats["unexpected"] < 100_000
        here(DRAIN, count=count, size=size, timeout=600)
        flooder.result()
    assert memory.grown < 64 * MIB + 2 * WINDOW + SLACK


@pytest.mark.parametrize("peers", [1, 4])
def test_peers_share_what_they_may_send_unasked(start, transport, peers):
    """When the session's bound is used up, a flood continues for the window of its connection
    only."""
    settings = {**ONLY[transport], "UNEXPECTED_MAX": 8 * MIB, "RTS_MAX": 1}
    here, *there = (start(settings) for _ in range(1 + peers))
    address = here("peers = []; sock = session.listen('127.0.0.1'); sock.address")
    for peer in there:
        peer.connect(address)
        here("flood = sock.accept(60); flood.recv(); peers.append(flood)")
    there[-1].begin(FLOOD, count=20_000, size=1024)
    each, window = 1024 + 160, min(WINDOW, 8 * MIB // peers)
    full(here, kept=(8 * MIB + window * 3 // 4) // each)
    assert here("session.stats['unexpected']") * each < 8 * MIB + window * 5 // 4
    here(DRAIN, count=20_000, size=1024)
    there[-1].result()


@pytest.mark.parametrize("size", [0, 8, 1024, 60_000])
@pytest.mark.parametrize("limit", [0, MIB, 32 * MIB])
def test_memory_is_bounded(receiver, limit, size):
    """Memory is bounded for small messages, too, although their records are larger than their
    data."""
    count = min(300_000, 3 * limit // (size + 100) + 5000)
    here, flooder, _ = receiver(UNEXPECTED_MAX=limit)
    with Sampler(here) as memory:
        flooder.begin(FLOOD, count=count, size=size)
        full(here)
        here(DRAIN, count=count, size=size, timeout=200)
        flooder.result()
    assert memory.grown < limit + 2 * WINDOW + SLACK


def test_memory_comes_back_after_the_flood(receiver):
    """Ten floods use no more memory than one, apart from what the allocator keeps."""
    here, flooder, _ = receiver(UNEXPECTED_MAX=8 * MIB)
    assert 8 * MIB < 15_000 * 1024
    sizes = []
    for _ in range(10):
        flooder.begin(FLOOD, count=15_000, size=1024)
        full(here, least=len(sizes) + 1)
        here(DRAIN, count=15_000, size=1024)
        flooder.result()
        sizes.append(here.resident())
    assert sizes[-1] - sizes[1] < 8 * MIB


def test_a_flood_of_posted_sends(receiver):
    """The sender posts all sends at once: its own memory may grow, the receiver's may not."""
    here, flooder, _ = receiver(UNEXPECTED_MAX=MIB)
    with Sampler(here) as memory:
        flooder("data = bytes(1024); sends = [c.isend(data, tag=1) for _ in range(50_000)]")
        flooder.begin("pscompy.wait_all(sends)")
        full(here)
        here("for _ in range(50_000): flood.recv(tag=1)")
        flooder.result()
    assert memory.grown < MIB + 2 * WINDOW + SLACK


def test_a_flood_of_announcements(receiver):
    """Large messages without a receive cost a record each, and at most PSP_RTS_MAX of them are
    kept."""
    here, flooder, other = receiver(RTS_MAX=64)
    with Sampler(here) as memory:
        flooder("data = bytes(1 << 20); sends = [c.isend(data, tag=1) for _ in range(500)]")
        flooder.begin("pscompy.wait_all(sends)")
        full(here, "unexpected", 64)
        assert here("session.stats['unexpected']") <= 64 + 2
        other.begin("c.send(b'through')")
        assert here("bytes(other.recv())") == b"through"
        other.result()
        here("buffer = bytearray(1 << 20)\nfor _ in range(500): flood.recv(buffer, tag=1)")
        flooder.result()
    assert memory.grown < SLACK


def test_both_flood_each_other(connect, transport):
    """Both sides post all sends before they receive; neither blocks."""
    link = connect(transport, UNEXPECTED_MAX=MIB)
    count = 20_000
    exchange = """
    sends = [c.isend(i.to_bytes(4, "little") * 250) for i in range(count)]
    right = sum(c.recv() == i.to_bytes(4, "little") * 250 for i in range(count))
    pscompy.wait_all(sends)
    right
    """
    link.peer.begin(exchange, count=count)
    sends = [link.c.isend(i.to_bytes(4, "little") * 250) for i in range(count)]
    for i in range(count):
        assert link.c.recv(timeout=BOUND) == i.to_bytes(4, "little") * 250
    for send in sends:
        send.wait(BOUND)
    assert link.peer.result() == count


def test_control_messages_pass_a_flood(receiver):
    """A connection that has used up its credit still closes in order."""
    here, flooder, _ = receiver(UNEXPECTED_MAX=0, SHUTDOWN_TIMEOUT=30)
    flooder("data = bytes(1024)\nfor _ in range(2000): c.isend(data, tag=1)")
    full(here)
    here("flood.close()")
    expect_soon(lambda: here("session.progress(); flood.state.name") == "CLOSED")
    assert flooder.finish() == 0
