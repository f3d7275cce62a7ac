"""Several threads on one session: no message is lost, duplicated or delayed."""

from __future__ import annotations

import pytest
from puppets import BOUND, answer_in_threads, check_echo, echo, together

import pscompy

THREADS = 4


@pytest.mark.parametrize("nbytes", [8, 20_000, 500_000])
def test_four_threads_on_one_connection(link, nbytes):
    """Each of four threads uses a tag of its own, against four threads of the peer."""
    count = {8: 2000, 20_000: 500, 500_000: 60}[nbytes]
    link.peer.begin(answer_in_threads, count=count, n=THREADS)

    def exchange(tag):
        for i in range(count):
            data = (i * THREADS + tag).to_bytes(8, "little") * (nbytes // 8)
            link.c.send(data, tag=tag)
            assert link.c.recv(tag=tag, timeout=BOUND) == data

    together(*(lambda tag=tag: exchange(tag) for tag in range(THREADS)))
    link.peer.result()


def count_then_answer(here, count):
    n = sum(len(here.c.recv(tag=1)) for _ in range(count))
    here.c.send(b"end", tag=2)
    return n


def test_one_sends_while_another_is_blocked_in_a_receive(link):
    """One thread sends on a connection while another waits on it for the peer's last message."""
    count = 2000
    link.peer.begin(count_then_answer, count=count)
    got = []

    def receive():
        got.append(link.c.recv(tag=2, timeout=BOUND))

    def send():
        for _ in range(count):
            link.c.send(b"12345678", tag=1)

    together(receive, send)
    assert got == [b"end"]
    assert link.peer.result() == 8 * count


def send_numbers(here, count):
    for i in range(count):
        here.c.send(i.to_bytes(4, "little"))


def test_receivers_share_a_stream(link):
    """Four threads receive from one connection: every message once, and each thread's in order."""
    count = 4000
    link.peer.begin(send_numbers, count=count)
    got = [[] for _ in range(THREADS)]

    def receive(mine):
        for _ in range(count // THREADS):
            mine.append(int.from_bytes(link.c.recv(timeout=BOUND), "little"))

    together(*(lambda mine=mine: receive(mine) for mine in got))
    assert sorted(i for mine in got for i in mine) == list(range(count))
    assert all(mine == sorted(mine) for mine in got)
    link.peer.result()


def test_senders_share_a_connection(link):
    count = 3000
    link.peer.begin(
        lambda here, count: [tuple(here.c.recv()) for _ in range(4 * count)], count=count
    )

    def send(thread):
        for i in range(count):
            link.c.send(bytes([thread, i % 256, i // 256]))

    together(*(lambda thread=thread: send(thread) for thread in range(THREADS)))
    got = link.peer.result()
    for thread in range(THREADS):
        assert [m for m in got if m[0] == thread] == [
            (thread, i % 256, i // 256) for i in range(count)
        ]


def test_threads_on_different_connections(link, join):
    links = [link, *(join(link) for _ in range(3))]
    for each in links:
        each.peer.begin(echo, 1000)

    def exchange(each):
        for i in range(1000):
            each.c.send(i.to_bytes(4, "little"))
            assert each.c.recv(timeout=BOUND) == i.to_bytes(4, "little")

    together(*(lambda each=each: exchange(each) for each in links))


def send_200(here):
    for i in range(200):
        here.c.send(bytes([i]))


def test_waiting_for_each_others_requests(link):
    """One thread posts the requests, all threads wait for them."""
    requests = [link.c.irecv() for _ in range(200)]
    link.peer.begin(send_200)
    together(
        *(lambda: [request.wait(BOUND) for request in requests] for _ in range(THREADS - 1)),
        lambda: pscompy.wait_all(requests, timeout=BOUND),
    )
    assert [request.result() for request in requests] == [bytes([i]) for i in range(200)]
    link.peer.result()


def test_one_cancels_while_another_waits(link):
    for _ in range(50):
        request = link.c.irecv(tag=77)

        def wait(request=request):
            with pytest.raises(pscompy.Cancelled):
                request.wait(BOUND)

        together(wait, request.cancel)
    check_echo(link)


def send_active(here):
    for i in range(2000):
        here.c.am_send(3, i.to_bytes(4, "little"), b"")
    here.c.send(b"")


def test_messages_to_handlers_from_all_threads(link):
    """Active messages are delivered once each, by whichever thread makes progress."""
    seen = []
    link.session.on_message(3, lambda c, header, payload: seen.append(bytes(header)))
    link.peer.begin(send_active)
    together(lambda: link.c.recv(timeout=BOUND), *[lambda: link.c.iprobe(tag=5)] * 3)
    link.peer.result()
    # the last messages may have arrived together with the one that recv returned
    while len(seen) < 2000:
        link.session.progress()
    assert sorted(seen) == sorted(i.to_bytes(4, "little") for i in range(2000))
