"""Dumps and PSP_DEADLOCK_WARNINGS name endpoints; by real jobs."""

from __future__ import annotations

import signal
import threading

import pytest

import pscompy
from tests.launch.ranks import lines_until

CATEGORIES = ("dynamic", "shared", "single")

# ---- dumps ----


def wait_on_all():
    with pscompy.World() as world:
        peer = 1 - world.rank
        outer = world.endpoints(2)
        named = [*outer, *outer[1].endpoints(1), *world.endpoints(1)]
        posted = [
            it.irecv(source=peer, tag=tag + k)
            for k, endpoint in enumerate(named)
            for tag, it in ((100, endpoint), (200, endpoint.dup()))
        ]
        if world.rank == 0:
            print(world.session.dump())
        assert not any(request.test() for request in posted)
        world.barrier()
        world.close()


LABELS = {  # of the first two endpoints, of one of the second, and of another call of the World
    "dynamic": ["endpoint 0", "endpoint 1", "endpoint 0 of endpoint 1", "endpoint 0 of set 2"],
    "shared": [
        *("endpoint 0", "endpoint 1"),
        *("endpoint 0 of set 2 of endpoint 1", "endpoint 0 of set 2"),
    ],
    "single": [
        *("endpoint 0", "endpoint 1"),
        *("endpoint 0 of set 3 of endpoint 1", "endpoint 0 of set 4"),
    ],
}


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_dump_names_the_endpoint_of_each_request(run, script, category):
    lines = run.lines(2, *run.python(script(wait_on_all)), PSP_ENDPOINTS=category)
    for k, label in enumerate(LABELS[category]):
        for tag in (100 + k, 200 + k):
            (line,) = (it.strip() for it in lines if f"tag {tag}" in it)
            assert line.startswith(f"receive from rank 1, tag {tag}"), line
            assert line.endswith(f", {label}"), line
    sessions = sum("<Session 0" in it for it in lines)
    assert sessions == {"dynamic": 5, "shared": 4, "single": 1}[category]


def wait_on_the_second():
    with pscompy.World() as world:
        endpoint = world.endpoints(2)[1]
        if world.rank == 1:
            endpoint.isend(b"nobody wants this", dest=0, tag=8)
        endpoint.recv(source=1 - world.rank, tag=7)


def last_dump(lines):
    """The last dump of rank 0 that is complete, "" if there is none."""
    dumps = "".join(it for it in lines if it.startswith("[0] ")).split("<Session 0> ")
    return dumps[-2] if len(dumps) > 2 else ""


def test_the_dump_of_a_job_has_each_endpoint_once(run, script):
    process = run.start("-n", 2, "--label", "--dump-after", 1, script(wait_on_the_second))
    enough = ("waited for", "message from")
    text = last_dump(lines_until(process, lambda it: all(map(last_dump(it).count, enough))))
    assert "receive from rank 1, tag 7, endpoint 1  <- waited for" in text, text
    assert "message from rank 1, tag 8, 17 bytes, endpoint 1, arrived" in text, text
    assert [text.count(f"<Session 0 of endpoint {k}> ") for k in range(2)] == [1, 1], text


# ---- long waits ----


def wait_in_threads():
    """The ranks wait for each other on endpoint 0, and rank 0 alone on endpoint 1."""
    with pscompy.World() as world:
        threads = [
            threading.Thread(target=lambda it, k: it.recv(source=1 - it.rank, tag=k), args=(it, k))
            for k, it in enumerate(world.endpoints(2)[: 2 - world.rank], 7)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("category", CATEGORIES)
def test_long_waits_on_endpoints_are_told(run, script, category):
    env = {"PSP_DEADLOCK_WARNINGS": "0.4", "PSP_ENDPOINTS": category}
    process = run.start("-n", 2, script(wait_in_threads), env=env)
    told = [(0, "1, tag 7", 0), (0, "1, tag 8", 1), (1, "0, tag 7", 0)]

    def enough(lines):
        return all(any(tells(line, *it) for line in lines) for it in told)

    def tells(line, rank, what, k):
        waits = f"rank {rank} has waited" in line and f"receive from rank {what}" in line
        return waits and f"endpoint {k}" in line and "deadlock" not in line

    lines = lines_until(process, enough)
    assert enough(lines), lines


def test_ranks_that_wait_for_each_other_on_an_endpoint(run, script):
    program = script(wait_in_threads)
    process = run.start("-n", 2, program, env={"PSP_DEADLOCK_WARNINGS": "0.4"})
    line = lines_until(process, lambda it: "deadlock" in "".join(it[-1:]))[-1]
    assert "deadlock: ranks 0, 1 wait for each other" in line
    for rank in range(2):
        assert f"receive from rank {1 - rank}, tag 7, endpoint 0 (wait_in_threads.py:" in line
    assert "endpoint 1" not in line
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=100)[1]
    for rank in range(2):
        end = f"rank {rank} was ended by SIGTERM; has waited"
        assert sum(f"pscompy run: {end}" in it for it in rest.splitlines()) == 1, rest
