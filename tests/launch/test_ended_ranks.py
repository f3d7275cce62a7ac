"""Ranks that end, or leave their World, before anybody has connected to them."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress

import pytest

import pscompy
from pscompy.world.bootstrap import ends
from pscompy.world.bootstrap.ends import EVERY, End, Ends
from pscompy.world.bootstrap.pmi1_server import Server
from pscompy.world.bootstrap.pmi1_wire import LINE_MAX, WireError, parse
from tests.jobs import TIMEOUT
from tests.launch.ranks import own_rank
from tests.launch.test_hosts import two  # noqa: F401
from tests.launch.test_store import free_port, numbered, start  # noqa: F401
from tests.waiting import stay

# ---- in a rank ----


def outcome(operation):
    """The result or the error of a call that waits for a rank."""
    try:
        return operation()
    except pscompy.PscomError as error:
        return f"{type(error).__name__}: {error}"


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def leave(world, how):
    """End this process, or its World."""
    if how == "exits":
        sys.exit(0)
    elif how == "vanishes":
        os._exit(0)
    elif how == "closes":
        world.close()
    else:
        try:
            with world:
                raise ValueError
        except ValueError:
            pass
    stay()


def lack_a_peer(world, gone):
    """Say how operations that need rank `gone` end: those that are in flight when the launcher
    reports its end, and those that begin later."""
    early = outcome(lambda: world.irecv(source=gone))
    say(early if isinstance(early, str) else outcome(lambda: early.wait(60)))
    say(outcome(lambda: world.send(b"late", dest=gone, timeout=60)))
    say(outcome(lambda: world.recv_obj(source=gone, timeout=60)))
    say(outcome(lambda: world.connection(gone).open(60)))


def meets_a_rank_that_left(how):
    world = pscompy.World()
    if world.rank == 1:
        leave(world, how)
    if world.rank == 2:
        world.recv(source=0)
        leave(world, how)
    anybody = world.irecv()
    lack_a_peer(world, 1)
    say(outcome(lambda: anybody.wait(0.7)).partition(":")[0])
    world.send(b"", dest=2)
    say(outcome(lambda: anybody.wait(60)))
    say(outcome(lambda: world.recv_obj(timeout=60)))
    world.abort(3)


# ---- in the test ----


@pytest.mark.parametrize("shm", [1, 0])
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("exits", "Closed: rank 1 has ended"),
        ("vanishes", "PeerLost: rank 1 has ended"),
        ("closes", "Closed: rank 1 has left its World"),
        ("raises", "PeerLost: rank 1 has left its World by an exception"),
    ],
)
def test_what_needs_a_rank_that_has_left_says_so(run, script, how, told, shm):
    done = run("-n", 3, script(meets_a_rank_that_left, how), env={"PSP_SHM": str(shm)})
    alone = "PeerLost: <World rank 0 of 3>: all other ranks have ended or left their World"
    assert done.stdout.splitlines() == [told] * 4 + ["Timeout", alone, alone], done.stderr


@pytest.mark.parametrize("shm", [1, 0])
@pytest.mark.parametrize("gone", [0, 1], ids=["the-one-with-the-store", "another"])
def test_a_rank_of_a_store_that_was_killed(start, script, gone, shm):  # noqa: F811
    def loses_a_peer(gone):
        world = pscompy.World()
        say("open")
        if world.rank == gone:
            stay()
        sys.stdin.readline()
        lack_a_peer(world, gone)

    port = free_port()
    program = script(loses_a_peer, gone)
    ranks = [start(program, **numbered(rank, 2, port, PSP_SHM=shm)) for rank in (0, 1)]
    assert [it.stdout.readline() for it in ranks] == ["open\n"] * 2
    ranks[gone].send_signal(signal.SIGKILL)
    ranks[gone].wait(TIMEOUT)
    # descriptor 0 is /dev/null, so the other rank goes on at once: perhaps before the store knows
    out, err = ranks[1 - gone].communicate(timeout=TIMEOUT)
    assert out.splitlines() == [f"PeerLost: rank {gone} has ended"] * 4, err


def test_a_rank_of_a_store_whose_child_outlives_it(start, script):  # noqa: F811
    def leaves_a_child():
        world = pscompy.World()
        if world.rank:
            child = os.fork()
            if not child:
                stay()
            say(child)
            os.kill(os.getpid(), signal.SIGKILL)
        say(outcome(lambda: world.recv(source=1, timeout=20)))

    port, program = free_port(), script(leaves_a_child)
    first, second = (start(program, **numbered(rank, 2, port, PSP_SHM=0)) for rank in (0, 1))
    child = int(second.stdout.readline())
    out, err = first.communicate(timeout=TIMEOUT)
    os.kill(child, signal.SIGKILL)
    assert out == "PeerLost: rank 1 has ended\n", err


def test_what_was_sent_before_arrives_first(run, script):
    def takes_all():
        world = pscompy.World()
        if world.rank:
            world.send(b"%d" % world.rank, dest=0)
            world.send(b"x" * 1_000_000, dest=0)
            world.close()
            return
        taken = [len(world.recv(timeout=60)) for _ in range(4)]
        say(sorted(taken), outcome(lambda: world.recv(timeout=60)))
        say(outcome(lambda: world.send(b"", dest=1)))

    for shm in "10":
        out = run("-n", 3, script(takes_all), env={"PSP_SHM": shm}).stdout
        assert out.startswith("[1, 1, 1000000, 1000000] PeerLost: <World rank 0 of 3>: all other")


def test_endpoints_of_a_rank_that_has_left(run, script):
    def has_endpoints():
        world = pscompy.World()
        before = world.endpoints(2)
        world.barrier()
        if world.rank == 1:
            leave(world, "closes")
        say(outcome(lambda: before[1].recv(source=1, timeout=60)))
        say(outcome(lambda: before[0].send(b"", dest=1, timeout=60)))
        world.abort(3)

    done = run("-n", 2, script(has_endpoints), env={"PSP_ENDPOINTS": "dynamic"})
    assert done.stdout.splitlines() == ["Closed: rank 1 has left its World"] * 2, done.stderr


def test_a_world_after_the_one_that_was_left(run, script):
    def opens_two():
        first = pscompy.World()
        first.close()
        second = pscompy.World()
        if second.rank:
            second.send(b"second", dest=0)
            with second:
                pass
        else:
            say(bytes(second.recv(source=1, timeout=60)))
            with second:
                pass

    done = run("-n", 2, script(opens_two))
    assert (done.stdout, done.stderr, done.returncode) == ("b'second'\n", "", 0)


def test_a_rank_that_drops_its_world(run, script):
    def drops_it():
        world = pscompy.World()
        if world.rank == 1:
            del world
            gc.collect()
            stay()
        say(outcome(lambda: world.recv(source=1, timeout=60)))
        say(outcome(lambda: world.send(b"", dest=1, timeout=60)))
        world.abort(3)

    done = run("-n", 2, script(drops_it))
    assert done.stdout.splitlines() == ["Closed: rank 1 has left its World"] * 2, done.stderr


def test_a_rank_whose_world_fails_to_open(run, script):
    def fails():
        class Broken(pscompy.World):
            def _watch(self):
                raise ValueError

        if own_rank() == 1:
            with suppress(ValueError):
                Broken()
            stay()
        world = pscompy.World()
        say(outcome(lambda: world.recv(source=1, timeout=60)))
        world.abort(3)

    done = run("-n", 2, script(fails))
    assert done.stdout == "PeerLost: rank 1 has left its World by an exception\n", done.stderr


def test_a_rank_of_another_host_that_has_left(two, script):  # noqa: F811
    done = two("--hosts", "10.99.0.1:1,10.99.0.2:2", script(meets_a_rank_that_left, "vanishes"))
    assert done.stdout.splitlines()[:4] == ["PeerLost: rank 1 has ended"] * 4, done.stderr


# ---- the server ----


def opened(server, rank):
    server.receive(rank, b"cmd=init pmi_version=1 pmi_subversion=1")
    return server.receive(rank, b"cmd=watch since=0 world=0")


def test_reports_are_put_together_for_a_rank_that_does_not_read():
    server = Server([40], "pscompy-name")
    assert opened(server, 0) == []
    replies = [it for rank in range(1, 40) for it in server.end(rank, -signal.SIGKILL)]
    assert len(replies) == 1
    known = 0
    while known < 39:
        ((rank, line),) = replies or server.receive(0, b"cmd=watch since=%d" % known)
        command, fields = parse(line)
        assert (rank, command, len(line) <= LINE_MAX) == (0, "ends", True)
        told = ends.unpack(fields["list"])
        assert told == [
            End(it, EVERY, True, "has ended (signal 9)")
            for it in range(known + 1, known + 1 + len(told))
        ]
        known, replies = known + len(told), []


def test_a_rank_that_shares_its_socket_with_mpi_gets_no_reports():
    server = Server([2], "pscompy-name")
    assert opened(server, 0) == []
    server.receive(0, b"cmd=init pmi_version=1 pmi_subversion=1")
    assert server.end(1, 0) == []
    assert server.receive(0, b"cmd=watch since=0") == []


def test_a_rank_that_has_signed_off_gets_no_reports():
    server = Server([2], "pscompy-name")
    opened(server, 0)
    server.receive(0, b"cmd=finalize")
    assert server.end(1, 0) == []


@pytest.mark.parametrize("line", [b"cmd=watch", b"cmd=watch since=-1", b"cmd=leave world=x"])
def test_requests_that_are_malformed_are_refused(line):
    with pytest.raises(WireError):
        Server([2], "pscompy-name").receive(0, line)


@pytest.mark.parametrize("words", ["", "1:0:1", "x:0:1:has_ended", "1:0:1:a:b"])
def test_reports_that_are_malformed_are_refused(words):
    with pytest.raises(WireError):
        ends.unpack(words)


def test_an_end_is_told_to_all_who_wait_and_to_those_who_ask_later():
    told = Ends()
    assert told.watch(0, 0) == told.watch(2, 0) == []
    end = End(1, 0, False, "has left its World")
    assert [rank for rank, _ in told.add(end)] == [0, 2]
    ((rank, line),) = told.watch(3, 0)
    assert (rank, ends.unpack(parse(line)[1]["list"])) == (3, [end])
