"""Calls that all ranks of a World make, by real jobs: barriers, duplicates, the job's abort."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pscompy
from tests.waiting import expect_soon, stay


def sign(folder, name):
    """Leave a file for `all_signed`."""
    open(f"{folder}/{name}", "w").close()


def all_signed(folder, *names):
    """Wait until all these files are there."""
    expect_soon(lambda: all(Path(folder, name).exists() for name in names))


def enters_early(world, folder, turn):
    """Enter the barrier before the late rank does, and poll long enough to leave it if the barrier
    did not wait for the late rank."""
    request = world.ibarrier()
    sign(folder, f"in {turn} {world.rank}")
    early = [rank for rank in range(world.size) if rank != turn]
    while not all(Path(folder, f"in {turn} {rank}").exists() for rank in early):
        assert not request.test()
    for _ in range(1000):
        assert not request.test()
    sign(folder, f"polled {turn} {world.rank}")
    request.wait()


def takes_turns_at_being_late(folder):
    with pscompy.World() as world:
        for late in range(world.size):
            came = time.monotonic()
            if world.rank == late:
                early = (rank for rank in range(world.size) if rank != late)
                all_signed(folder, *(f"polled {late} {rank}" for rank in early))
                came = time.monotonic()
                world.barrier()
            else:
                enters_early(world, folder, late)
            print(late, came, time.monotonic())


def test_nobody_passes_a_barrier_before_all_have_come(run, script, tmp_path):
    program = script(takes_turns_at_being_late, str(tmp_path))
    lines = [line.split() for line in run.lines(5, program)]
    for late in "01234":
        came = [float(c) for n, c, _ in lines if n == late]
        passed = [float(p) for n, _, p in lines if n == late]
        assert len(came) == 5
        assert max(came) <= min(passed)


def test_a_barrier_that_timed_out_goes_on(run, script, tmp_path):
    """Rank 0 enters the barrier only after the other ranks have timed out."""

    def times_out(folder):
        with pscompy.World() as world:
            if world.rank == 0:
                all_signed(folder, "1", "2")
                world.barrier(timeout=100)
                print("passed")
            else:
                try:
                    world.barrier(timeout=0.1)
                except pscompy.Timeout as error:
                    sign(folder, world.rank)
                    error.request.wait(100)
                    print("waited on")
            world.barrier(timeout=100)

    lines = run.lines(3, script(times_out, str(tmp_path)))
    assert lines == ["passed", "waited on", "waited on"]


def test_barriers_are_awaited_and_may_overlap(run, script):
    def overlaps():
        async def awaits():
            async with pscompy.World() as world:
                other = world.dup()
                for _ in range(20):
                    await asyncio.gather(world.ibarrier(), other.ibarrier(), world.ibarrier())

        asyncio.run(awaits())
        print("ok")

    assert run.lines(4, script(overlaps)) == ["ok"] * 4


def test_barriers_do_not_touch_messages(run, script):
    def sends_before():
        with pscompy.World() as world:
            world.isend(b"mine", (world.rank + 1) % world.size)
            for _ in range(3):
                world.barrier()
            assert bytes(world.recv()) == b"mine"
            assert world.iprobe() is None
            print("ok")

    assert run.lines(3, script(sends_before)) == ["ok"] * 3


def test_duplicates_keep_their_messages_apart(run, script):
    def duplicates():
        with pscompy.World() as world:
            worlds = [world, world.dup(), world.dup()]
            worlds.append(worlds[1].dup())
            after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
            requests = [w.isend(bytes([i]), after) for i, w in enumerate(worlds)]
            for i, w in reversed(list(enumerate(worlds))):
                data, status = w.recv_status()
                assert (bytes(data), status.source) == (bytes([i]), before), (i, data)
                w[before].irecv().cancel()
            pscompy.wait_all(requests)
            assert type(worlds[3]) is pscompy.Communicator
            assert len(worlds[3]) == world.size
            contexts = sorted({w._context.number for w in worlds})
            print(contexts, world.stats["connections_up"] <= 4)

    lines = run.lines(5, script(duplicates))
    assert len(set(lines)) == 1
    assert lines[0].endswith("] True")
    assert lines[0].count(",") == 3


def test_abort_ends_the_job(run, script):
    def aborts():
        with pscompy.World() as world:
            print("said", world.rank)
            if world.rank == 1:
                world.abort(6)
            stay()

    done = run("-n", 3, script(aborts))
    assert done.returncode == 6
    assert "said 1" in done.stdout
    assert "rank 1 aborted the job with code 6" in done.stderr


def test_abort_ends_the_job_without_an_output(run, script):
    def aborts():
        with pscompy.World() as world:
            if world.rank == 1:
                with Path("/dev/full").open("w") as full:
                    sys.stdout, sys.stderr = None, full
                    print("lost", file=full)
                    world.abort(6)
            stay()

    assert run("-n", 3, script(aborts)).returncode == 6
