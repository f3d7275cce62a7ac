"""Requests of objects: their order, their end, time limits, await, threads."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
from puppets import BOUND

import pscompy

LONG = 1 << 19  # number of doubles: 4 MiB


def send_with_tags(here, *tags):
    for tag in tags:
        here.c.send_obj([tag, np.ones(1 << 16)], tag)


def send_array(here, tag=0):
    here.c.send_obj([np.ones(1 << 17)], tag)


def test_requests_end_in_any_order(link):
    requests = [link.c.irecv_obj(tag) for tag in range(4)]
    link.peer.begin(send_with_tags, 3, 1, 0, 2)
    results = pscompy.wait_all(requests, BOUND)
    assert [result[0] for result in results] == [0, 1, 2, 3]
    assert [request.status.tag for request in requests] == [0, 1, 2, 3]
    link.peer.result()


def test_a_receive_that_is_cancelled_takes_nothing(link):
    request = link.c.irecv_obj()
    assert request.cancel()
    with pytest.raises(pscompy.Cancelled):
        request.result()
    link.peer(lambda here: here.c.isend_obj(1))
    assert link.c.recv_obj(timeout=BOUND) == 1


def test_a_cancelled_await_takes_nothing(link):
    async def main():
        for limit in (0, 0.01):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(link.c.irecv_obj(), limit)

    asyncio.run(main())
    link.peer.begin(send_array)
    assert link.c.recv_obj(timeout=BOUND)[0].sum() == 1 << 17
    link.peer.result()


def test_a_dropped_receive_takes_nothing(link):
    link.c.irecv_obj(tag=1)
    link.peer.begin(send_array, tag=1)
    assert link.c.recv_obj(tag=1, timeout=BOUND)[0].sum() == 1 << 17
    link.peer.result()


def test_a_receive_whose_time_is_over_takes_nothing(link):
    with pytest.raises(pscompy.Timeout) as caught:
        link.c.recv_obj(timeout=0.01)
    assert caught.value.request is None
    link.peer.begin(send_array)
    assert link.c.recv_obj(timeout=BOUND)[0].sum() == 1 << 17
    link.peer.result()


def test_a_send_whose_time_is_over_goes_on(link):
    with pytest.raises(pscompy.Timeout) as caught:
        link.c.send_obj(np.ones(LONG), timeout=0.01)
    link.peer.begin(lambda here: float(here.c.recv_obj().sum()))
    caught.value.request.wait(BOUND)
    assert link.peer.result() == LONG


def send_five_and_await_answers(here):
    for n in range(5):
        here.c.send_obj([n, np.ones(n << 15)])
        assert here.c.recv_obj() == n


def test_await(link):
    link.peer.begin(send_five_and_await_answers)

    async def talk():
        for n in range(5):
            made = await link.c.irecv_obj()
            assert made[1].sum() == n << 15
            await link.c.isend_obj(made[0])

    asyncio.run(asyncio.wait_for(talk(), BOUND))
    link.peer.result()


def echo_in_threads(here, rounds, threads):
    def serve(tag):
        for _ in range(rounds):
            here.c.send_obj(here.c.recv_obj(tag), tag)

    servers = [threading.Thread(target=serve, args=(tag,)) for tag in range(threads)]
    for server in servers:
        server.start()
    for server in servers:
        server.join()


def test_threads(link):
    """Each thread uses a tag of its own; the lengths are chosen so that heads and chunks mix."""
    rounds, threads = 20, 4
    link.peer.begin(echo_in_threads, rounds, threads)
    failed = []

    def call(tag):
        for n in range(rounds):
            field = np.full(1 << (8 + n % 10), tag * 100 + n, np.int64)
            link.c.send_obj(field, tag)
            if not np.array_equal(link.c.recv_obj(tag), field):
                failed.append((tag, n))

    callers = [threading.Thread(target=call, args=(tag,)) for tag in range(threads)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(BOUND)
    assert not any(caller.is_alive() for caller in callers)
    assert not failed
    link.peer.result()
