"""The rank that `pscompy run` blames: the one that has failed first, even if others end before."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time

import pytest

import pscompy
from pscompy.errors import Closed, ConnectError, PeerLost
from pscompy.launch.verdict import Failure, Verdict
from pscompy.world.bootstrap.blame import blamed_rank
from pscompy.world.bootstrap.pmi1_server import Server
from tests.launch.ranks import own_rank
from tests.launch.test_hosts import two  # noqa: F401
from tests.waiting import stay

# ---- in a rank ----


def fail(way):
    """End this process as `way` says; the exit code is 3 where there is one."""
    if way == "exits":
        sys.exit(3)
    elif way == "raises":
        raise ValueError("mine")
    elif way == "vanishes":
        os._exit(3)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def depend(world, last):
    """Let each rank but the last one wait for a second message of the next one."""
    if world.rank:
        world.send(b"first", dest=world.rank - 1)
    if world.rank != last:
        world.recv(source=world.rank + 1)
    world.barrier()
    if world.rank != last:
        world.recv(source=world.rank + 1)


def end_late(last):
    """Let the process of rank `last` end a second after it has closed its connections."""
    if own_rank() == last:
        atexit.register(time.sleep, 1)


def fails_in_its_block(way):
    end_late(2)
    with pscompy.World() as world:
        depend(world, 2)
        fail(way)


def fails_without_a_block(way):
    end_late(2)
    world = pscompy.World()
    depend(world, 2)
    fail(way)


def catches_the_loss(way):
    end_late(2)
    with pscompy.World() as world:
        try:
            depend(world, 2)
        except pscompy.PscomError:
            sys.exit(5)
        fail(way)


def closes_in_finally():
    world = pscompy.World()
    if world.rank == 2:  # the others notice the end of its connections before `close` returns
        world.irecv(tag=1).add_done_callback(lambda _: time.sleep(1))
    try:
        depend(world, 2)
        fail("exits")
    finally:
        world.close()


def leaves_early_and_stays(code):
    world = pscompy.World()
    world.barrier()
    if world.rank == 0:
        try:
            with world:
                raise ValueError
        except ValueError:
            stay()
    try:
        world.recv(source=0)
    except pscompy.PscomError:
        sys.exit(code)


# ---- in the test ----

WAYS = {
    "exits": (3, "exited with code 3"),
    "raises": (1, "exited with code 1"),
    "vanishes": (3, "exited with code 3"),
    "is-killed": (137, "was ended by SIGKILL"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "program",
    [fails_in_its_block, fails_without_a_block, catches_the_loss],
    ids=lambda it: it.__name__,
)
def test_the_first_failure_counts(run, script, program, way):
    code, words = WAYS[way]
    done = run.having(PATIENCE=60)("-n", 3, script(program, way))
    ours = [it for it in done.stderr.splitlines() if it.startswith("pscompy run: ")]
    assert ours[0].startswith(f"pscompy run: rank 2 {words}"), done.stderr
    assert done.returncode == code


def test_the_first_failure_counts_if_each_rank_closes_in_finally(run, script):
    done = run.having(PATIENCE=60)("-n", 3, script(closes_in_finally))
    assert "pscompy run: rank 2 exited with code 3" in done.stderr
    assert done.returncode == 3


@pytest.mark.parametrize("way", ["exits", "is-killed"])
def test_the_first_failure_on_several_hosts_counts(two, script, way):  # noqa: F811
    code, words = WAYS[way]
    hosts = "10.99.0.1:2,10.99.0.2:1"
    done = two("--hosts", hosts, script(fails_in_its_block, way))
    assert f"\npscompy run: rank 2 {words}" in f"\n{done.stderr}"
    assert done.returncode == code


def test_a_rank_that_left_and_goes_on_has_not_failed(run, script):
    done = run.having(PATIENCE=0.2)("-n", 2, script(leaves_early_and_stays, 4))
    assert "pscompy run: rank 1 exited with code 4; ending the others" in done.stderr
    assert done.returncode == 4


def test_an_abort_does_not_wait_for_ranks_that_have_left(run, script):
    def aborts():
        world = pscompy.World()
        world.barrier()
        if world.rank == 0:
            world.close()
            stay()
        world.abort(6)

    done = run.having(PATIENCE=1e6)("-n", 2, script(aborts))
    assert "rank 1 aborted the job with code 6" in done.stderr
    assert done.returncode == 6


# ---- by itself ----


def test_a_world_that_was_closed_is_no_departure_and_a_late_blame_counts():
    server = Server([3], "pscompy-name")
    server.receive(0, b"cmd=leave world=0 failed=0")
    server.receive(1, b"cmd=leave world=0 failed=1")
    server.receive(0, b"cmd=leave world=1 failed=1 blames=2")
    server.receive(1, b"cmd=finalize blames=0")
    server.receive(0, b"cmd=finalize")
    assert list(server.departures.items()) == [(1, 0), (0, 2)]


BAD, WORSE = Failure(1, "bad"), Failure(2, "worse")


def verdict(departures, ends):
    made = Verdict(departures)
    for rank, failure in ends.items():
        made.end(rank, failure)
    return made


@pytest.mark.parametrize(
    ("departures", "ended", "patient", "hasty"),
    [
        ({}, {}, None, None),
        ({0: None}, {0: None}, None, None),
        ({0: None, 1: None}, {1: WORSE, 0: BAD}, BAD, BAD),
        ({0: None, 1: None}, {1: BAD}, None, BAD),  # rank 0 may have failed before
        ({0: None, 1: None}, {0: None, 1: BAD}, BAD, BAD),
        ({0: 1, 1: None}, {0: BAD, 1: WORSE}, WORSE, WORSE),
        ({0: 1}, {0: BAD}, None, BAD),  # the blamed rank has not ended
        ({0: 1, 1: None}, {0: BAD, 1: None}, BAD, BAD),  # the blamed rank has not failed
        ({0: 2, 1: None, 2: 1}, {0: BAD, 2: BAD, 1: WORSE}, WORSE, WORSE),
        ({0: 1, 1: 0}, {0: BAD, 1: WORSE}, BAD, BAD),
    ],
)
def test_who_is_blamed(departures, ended, patient, hasty):
    found = verdict(departures, ended)
    assert (found.first(True), found.first(False)) == (patient, hasty)
    assert found.failed is any(ended.values())


def chained(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "rank"),
    [
        (None, None),
        (ValueError(), None),
        (PeerLost("gone", peer="rank 12"), 12),
        (Closed("closed", peer="003 (host, pid 5)"), 3),
        (ConnectError("refused", peer="7"), 7),
        (PeerLost("gone", peer="launcher"), None),
        (PeerLost("gone", peer="host.5.1.abc"), None),
        (pscompy.Timeout("late", peer="rank 1"), None),
        (chained(SystemExit(4), PeerLost("gone", peer="rank 2")), 2),
    ],
)
def test_which_rank_an_exception_blames(error, rank):
    assert blamed_rank(error) == rank


def test_an_exception_that_is_its_own_cause_blames_nobody():
    assert blamed_rank(chained(chained(ValueError(), None), None)) is None
    one, other = ValueError(), KeyError()
    one.__context__, other.__cause__ = other, one
    assert blamed_rank(one) is None
