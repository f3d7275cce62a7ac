"""Ranks that end, functions that fail and lengths that differ amid collective operations."""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
import threading

import numpy as np
import pytest

import pscompy

KILLS = int(os.environ.get("PSCOMPY_TEST_COLL_KILLS", "3"))
LENGTHS = (1, 300, 9_000, 150_000)  # elements of 8 bytes: eager ones, and those that are announced


def operand(rank, turn, length):
    return np.arange(length, dtype="i8") * (rank + 1) + turn


def summed(ranks, turn, length):
    return sum((operand(rank, turn, length) for rank in ranks), np.zeros(length, "i8"))


# ---- one call of each collective, and what it returns ----


def allreduces(world, given, turn, root):
    return world.allreduce(given), summed(range(world.size), turn, len(given))


def reduces(world, given, turn, root):
    expected = summed(range(world.size), turn, len(given))
    return world.reduce(given, root=root), expected if world.rank == root else None


def scans(world, given, turn, root):
    return world.scan(given), summed(range(world.rank + 1), turn, len(given))


def broadcasts(world, given, turn, root):
    return world.bcast(given, root=root), operand(root, turn, len(given))


def gathers(world, given, turn, root):
    rows = np.array([operand(rank, turn, len(given)) for rank in range(world.size)])
    return world.gather(given, root=root), rows if world.rank == root else None


def allgathers(world, given, turn, root):
    rows = np.array([operand(rank, turn, len(given)) for rank in range(world.size)])
    return world.allgather(given), rows


def exchanges(world, given, turn, root):
    parts = np.array([given + rank for rank in range(world.size)])
    rows = [operand(rank, turn, len(given)) + world.rank for rank in range(world.size)]
    return world.alltoall(parts), np.array(rows)


def combines(world, given, turn, root):
    expected = summed(range(world.size), turn, len(given))
    return world.allreduce(given, op=lambda a, b: a + b), expected


CALLS = (allreduces, reduces, scans, broadcasts, gathers, allgathers, exchanges, combines)


def call(world, number, turn, length, root):
    """Call a collective, and check its result. The operand is overwritten in any case, which no
    other rank may see."""
    given = operand(world.rank, turn, length)
    try:
        got, expected = CALLS[number](world, given, turn, root)
        assert np.array_equal(got, expected) if expected is not None else got is None
    finally:
        given[:] = -1


# ---- a rank is killed ----


def works_until_a_rank_is_lost(seed):
    draw = random.Random(seed)
    with pscompy.World() as world:
        victim, last, delay = draw.randrange(world.size), draw.randrange(20), draw.random() / 100
        try:
            for turn in itertools.count():
                if world.rank == victim and turn == last:
                    kill = os.kill, (os.getpid(), signal.SIGKILL)
                    threading.Timer(delay, *kill).start()
                number, root = draw.randrange(len(CALLS)), draw.randrange(world.size)
                call(world, number, turn, draw.choice(LENGTHS), root)
        except pscompy.PeerLost as error:
            assert (error.rank, f"rank {victim} is lost" in str(error)) == (victim, True)  # noqa: PT017
        for again in (world.barrier, lambda: world.allreduce(1), world.ibarrier().wait):
            with pytest.raises(pscompy.PeerLost, match=f"rank {victim} is lost"):
                again()
        print("lost", victim)


@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.parametrize("transport", ["shm", "tcp", "portals"])
def test_all_are_told_which_rank_was_lost(run, script, transport, seed):
    """Nobody returns wrong data as right, and nobody waits for ever."""
    n = 3 + seed % 3
    program = script(works_until_a_rank_is_lost, seed)
    done = run("-n", n, "--keep-going", program, env={"PSP_TRANSPORTS": transport})
    said = done.stdout.splitlines()
    assert (done.returncode, len(said)) == (137, n - 1), done.stderr
    assert len(set(said)) == 1
    assert re.search(r"rank \d was ended by SIGKILL; the others go on", done.stderr)


def loses_a_rank_of_a_module():
    rank = int(os.environ["PMI_RANK"])
    os.environ["PSP_MSA_MODULE_ID"] = str(1 + rank // 2)
    with pscompy.World() as world:
        module = world.split_by_module()
        if rank == 3:
            os._exit(1)
        if rank == 2:
            with pytest.raises(pscompy.PeerLost, match="rank 1 is lost") as raised:
                for _ in itertools.count():
                    module.barrier()
            assert raised.value.rank == 1
        else:
            assert [module.allreduce(1) for _ in range(2000)] == [2] * 2000
        with pytest.raises(pscompy.PeerLost, match="rank 3 is lost"):
            world.barrier()
        print("over")


def test_only_communicators_with_the_lost_rank_end(run, script):
    done = run("-n", 4, "--keep-going", script(loses_a_rank_of_a_module))
    assert (done.returncode, done.stdout.split()) == (1, ["over"] * 3), done.stderr


def works_beside_a_rank_that_leaves():
    """A rank that is still in the barrier may be told by one that has gone on."""
    with pscompy.World() as world:
        if world.rank == 1:
            world.barrier()
            world.close()
            return
        with pytest.raises(pscompy.Closed, match="rank 1") as raised:
            world.barrier()
            for _ in itertools.count():
                world.allgather(np.zeros(3))
        assert raised.value.rank == 1
        print("left")


def test_a_rank_that_leaves_is_named(run, script):
    done = run("-n", 4, script(works_beside_a_rank_that_leaves))
    assert (done.returncode, done.stdout.split()) == (0, ["left"] * 3), done.stderr


# ---- errors of ranks that go on ----


def fails_and_goes_on(length):
    """A function fails on one rank: the ranks that depend on its result are told, in an allreduce
    all, and the next operations are right."""
    with pscompy.World() as world:
        failed = set()
        for turn, name in enumerate(("allreduce", "reduce", "scan", "exscan", "reduce_scatter")):
            for culprit in range(world.size):

                def add(a, b, fails=world.rank == culprit):
                    return _fail() if fails else a + b

                given = np.ones(length * world.size if name == "reduce_scatter" else length)
                try:
                    getattr(world, name)(given, op=add)
                except ZeroDivisionError:
                    failed.add((name, culprit, culprit))
                except pscompy.RemoteError as error:
                    text = f"{name}: the function that combines has failed on rank {culprit}"
                    assert (str(error), error.rank) == (text, culprit)  # noqa: PT017
                    failed.add((name, culprit, world.rank))
                assert world.allreduce(turn) == turn * world.size
        told = world.allreduce_obj(failed, op=lambda a, b: a | b)
        for name in ("allreduce", "reduce_scatter", "scan"):
            culprits = {it[1] for it in told if it[0] == name}
            assert culprits
            for culprit in culprits:
                assert (name, culprit, culprit) in told
        for culprit in {it[1] for it in told if it[0] == "allreduce"}:
            assert all(("allreduce", culprit, rank) in told for rank in range(world.size))
        print("over")


def _fail():
    raise ZeroDivisionError


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("length", [1, 20_000])
def test_a_function_that_fails_is_told(run, script, n, length):
    assert run.lines(n, script(fails_and_goes_on, length)) == ["over"] * n


def adds_no_dictionaries():
    with pscompy.World() as world:
        kind = TypeError if world.rank == 0 else pscompy.RemoteError
        with pytest.raises(kind, match="unsupported operand"):
            world.allreduce_obj({}, timeout=60)
        assert world.allreduce_obj([world.rank]) == list(range(world.size))
        print("over")


def test_a_function_of_objects_that_fails_is_told(run, script):
    assert run.lines(3, script(adds_no_dictionaries)) == ["over"] * 3


def differs_in_length(short, long):
    with pscompy.World() as world:
        for turn in range(world.size):
            given = np.ones(short if world.rank == turn else long)
            for name in ("bcast", "allgather", "gather", "allreduce"):
                try:
                    getattr(world, name)(given)
                except pscompy.Truncated as error:
                    text = f"{name}: rank .* length: the ranks have called different operations"
                    assert re.match(text, str(error))  # noqa: PT017
                else:
                    assert name != "bcast" or world.rank != turn or turn == 0
                assert world.allreduce(world.rank) == sum(range(world.size))
        print("over")


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize(("short", "long"), [(1, 2), (3, 300), (1000, 1100)])
def test_another_length_is_an_error(run, script, n, short, long):
    """No rank waits for ever, nothing is written beyond a buffer, and the next operation is right
    (lengths for which all ranks choose the same algorithm)."""
    assert run.lines(n, script(differs_in_length, short, long)) == ["over"] * n


def closes_amid_a_broadcast():
    with pscompy.World() as world:
        pair = world.dup()
        if world.rank == 1:
            pair.close()
        else:
            with pytest.raises(pscompy.Closed, match="rank 1 has closed its comm") as raised:
                pair.bcast(np.zeros(1 << 20))
            assert raised.value.rank == 1
        assert world.allreduce(1) == 2
    print("ended")


@pytest.mark.parametrize("shm", ["0", "1"])
def test_a_rank_that_closes_its_communicator_ends_a_long_broadcast_to_it(run, script, shm):
    assert run.lines(2, script(closes_amid_a_broadcast), PSP_SHM=shm) == ["ended"] * 2
