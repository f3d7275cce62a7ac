"""Messages without a matching receive: memory stays bounded, and wanted messages still arrive.

`credit.h` defines the bound: PSP_UNEXPECTED_MAX for the session plus the window of each
connection. Beyond it senders turn to rendezvous, which costs a record per message.
"""

from __future__ import annotations

import os
import threading
import time

import pytest
from puppets import BOUND, ONLY, listen

import pscompy
from tests.waiting import expect_soon

MIB = 1 << 20
WINDOW = 4 * MIB
SLACK = 16 * MIB  # memory of the allocator and of the rings
LARGE = 256 << 10
# Messages; more than the receiver keeps unexpected.
COUNT = int(os.environ.get("PSCOMPY_TEST_FLOOD", "100000"))
MOST = min(32, COUNT // 12_500) * MIB  # the largest bound for unexpected messages


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


def accept_flood(here):
    here.flood = here.sock.accept(60)
    return here.flood.recv()


def accept_other(here):
    here.other = here.sock.accept(60)
    return here.other.recv()


@pytest.fixture
def receiver(start, transport):
    """Returns a function that starts a receiving puppet with two connected peers, `flood` and
    `other`; it returns all three."""

    def begin(**config):
        # few announcements, so that missing credit holds the flood back
        settings = {**ONLY[transport], "RTS_MAX": 1024, **config}
        receiver, flooder, other = (start(settings) for _ in range(3))
        address = receiver(listen)
        flooder.connect(address)
        receiver(accept_flood)
        other.connect(address)
        receiver(accept_other)
        return receiver, flooder, other

    return begin


# seconds that a flood may take on a busy machine; alone it takes ten at most
PATIENCE = 240.0


def fill(here, *args, **kwargs):
    """Have the far process call `full`."""
    here.begin(full, *args, **kwargs)
    here.result(PATIENCE + 10)


def full(here, counter="credits_withheld", least=1, kept=0):
    """Make progress without receiving, until `counter` reaches `least`, at least `kept` messages
    are unexpected, and no further message has arrived for 0.3 s."""
    deadline = time.monotonic() + PATIENCE
    while here.session.stats[counter] < least or here.session.stats["unexpected"] < kept:
        here.session.progress()
        assert time.monotonic() < deadline, here.session.stats
    seen, since = -1, time.monotonic()
    while time.monotonic() < since + 0.3:
        if here.session.progress() and here.session.stats["unexpected"] != seen:
            seen, since = here.session.stats["unexpected"], time.monotonic()


def send_large(here, large):
    for i in range(64):
        here.c.send(bytes([i]) * large)


@pytest.mark.timeout(900)
def test_many_messages_while_rendezvous_complete(receiver):
    """Large messages of another peer complete while the flood is held back; then every message
    of the flood is received, in order."""
    count, size = COUNT, 1024
    here, flooder, other = receiver(UNEXPECTED_MAX=64 * MIB)
    with Sampler(here) as memory:
        flooder.begin(flood, count=count, size=size)
        fill(here, kept=50_000)
        other.begin(send_large, large=LARGE)
        whole = here(
            lambda here, large: sum(here.other.recv() == bytes([i]) * large for i in range(64)),
            large=LARGE,
        )
        assert whole == 64
        other.result()
        stats = here(lambda here: here.session.stats)
        assert 50_000 <= stats["unexpected"] < 100_000
        here.begin(drain, count=count, size=size)
        here.result(timeout=600)
        flooder.result()
    assert memory.grown < 64 * MIB + 2 * WINDOW + SLACK


def flood(here, count, size):
    on_their_way = []
    for i in range(count):
        on_their_way.append(here.c.isend((i.to_bytes(4, "little") + bytes(size))[:size], tag=1))
        while len(on_their_way) > 20_000:
            pscompy.wait_any(on_their_way)
            on_their_way = [send for send in on_their_way if not send.test()]
    pscompy.wait_all(on_their_way)


def drain(here, count, size):
    message = bytearray(size)
    for i in range(count):
        here.flood.recv(message, tag=1)
        assert message[:4] == i.to_bytes(4, "little")[:size], (i, message[:4])


@pytest.mark.parametrize("peers", [1, 4])
def test_peers_share_what_they_may_send_unasked(start, transport, peers):
    """When the session's bound is used up, a flood continues for the window of its connection
    only."""
    settings = {**ONLY[transport], "UNEXPECTED_MAX": 8 * MIB, "RTS_MAX": 1}
    here, *there = (start(settings) for _ in range(1 + peers))
    address = here(listen)
    for peer in there:
        peer.connect(address)
        here(accept_flood)
    there[-1].begin(flood, count=20_000, size=1024)
    each, window = 1024 + 192, min(WINDOW, 8 * MIB // peers)
    fill(here, kept=(8 * MIB + window * 3 // 4) // each)
    assert here(lambda here: here.session.stats["unexpected"]) * each < 8 * MIB + window * 5 // 4
    here(drain, count=20_000, size=1024)
    there[-1].result()


@pytest.mark.parametrize("size", [0, 8, 1024, 60_000])
@pytest.mark.parametrize("limit", [0, MIB, MOST])
def test_memory_is_bounded(receiver, limit, size):
    """Memory is bounded for small messages, too, although their records are larger than their
    data."""
    count = min(300_000, 2 * limit // (size + 100) + 5000)
    here, flooder, _ = receiver(UNEXPECTED_MAX=limit, RENDEZVOUS=65536)
    with Sampler(here) as memory:
        flooder.begin(flood, count=count, size=size)
        fill(here)
        here.begin(drain, count=count, size=size)
        here.result(timeout=200)
        flooder.result()
    assert memory.grown < limit + 2 * WINDOW + SLACK


def test_memory_comes_back_after_the_flood(receiver):
    """Many floods use no more memory than one, apart from what the allocator keeps."""
    here, flooder, _ = receiver(UNEXPECTED_MAX=8 * MIB)
    assert 8 * MIB < 15_000 * 1024
    sizes = []
    for _ in range(max(4, COUNT // 100_000)):
        flooder.begin(flood, count=15_000, size=1024)
        fill(here, least=len(sizes) + 1)
        here(drain, count=15_000, size=1024)
        flooder.result()
        sizes.append(here.resident())
    assert sizes[-1] - sizes[1] < 8 * MIB


def post_sends(here):
    data = bytes(1024)
    here.sends = [here.c.isend(data, tag=1) for _ in range(50_000)]


def receive_flood(here):
    for _ in range(50_000):
        here.flood.recv(tag=1)


def test_a_flood_of_posted_sends(receiver):
    """The sender posts all sends at once: its own memory may grow, the receiver's may not."""
    here, flooder, _ = receiver(UNEXPECTED_MAX=MIB)
    with Sampler(here) as memory:
        flooder(post_sends)
        flooder.begin(lambda here: pscompy.wait_all(here.sends))
        fill(here)
        here(receive_flood)
        flooder.result()
    assert memory.grown < MIB + 2 * WINDOW + SLACK


def post_large_sends(here):
    data = bytes(1 << 20)
    here.sends = [here.c.isend(data, tag=1) for _ in range(500)]


def receive_large_flood(here):
    buffer = bytearray(1 << 20)
    for _ in range(500):
        here.flood.recv(buffer, tag=1)


def test_a_flood_of_announcements(receiver):
    """Large messages without a receive cost a record each, and at most PSP_RTS_MAX of them are
    kept."""
    here, flooder, other = receiver(RTS_MAX=64)
    with Sampler(here) as memory:
        flooder(post_large_sends)
        flooder.begin(lambda here: pscompy.wait_all(here.sends))
        fill(here, "unexpected", 64)
        assert here(lambda here: here.session.stats["unexpected"]) <= 64 + 2
        other.begin(lambda here: here.c.send(b"through"))
        assert here(lambda here: bytes(here.other.recv())) == b"through"
        other.result()
        here(receive_large_flood)
        flooder.result()
    assert memory.grown < SLACK


def exchange(here, count):
    here.sends = [here.c.isend(i.to_bytes(4, "little") * 250) for i in range(count)]
    right = sum(here.c.recv() == i.to_bytes(4, "little") * 250 for i in range(count))
    pscompy.wait_all(here.sends)
    return right


def test_both_flood_each_other(connect, transport):
    """Both sides post all sends before they receive; neither blocks."""
    link = connect(transport, UNEXPECTED_MAX=MIB)
    count = 20_000

    link.peer.begin(exchange, count=count)
    sends = [link.c.isend(i.to_bytes(4, "little") * 250) for i in range(count)]
    for i in range(count):
        assert link.c.recv(timeout=BOUND) == i.to_bytes(4, "little") * 250
    for send in sends:
        send.wait(BOUND)
    assert link.peer.result() == count


def post_and_drop(here):
    data = bytes(1024)
    for _ in range(2000):
        here.c.isend(data, tag=1)


def progressed_state(here):
    here.session.progress()
    return here.flood.state.name


def test_control_messages_pass_a_flood(receiver):
    """A connection that has used up its credit still closes in order."""
    here, flooder, _ = receiver(UNEXPECTED_MAX=0, SHUTDOWN_TIMEOUT=30)
    flooder(post_and_drop)
    fill(here)
    here(lambda here: here.flood.close())
    expect_soon(lambda: here(progressed_state) == "CLOSED")
    assert flooder.finish() == 0
