"""A job that hangs: the warnings about it, its dump, and the summary at its end."""

from __future__ import annotations

import ctypes
import signal
import time
from pathlib import Path

import pytest

import pscompy
from pscompy.launch.job import Job, Plan
from pscompy.world.bootstrap.waits import Wait
from pscompy.world.watch import Cycle
from tests.launch.ranks import lines_until, own_rank, say
from tests.waiting import expect_soon, stay

FILE = "waits_in_a_ring.py"

# ---- in a rank ----


def waits_in_a_ring():
    """Each rank receives from the next one before it sends to the one before it."""
    with pscompy.World() as world:
        right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        world.isend(b"nobody wants this", dest=left, tag=100 + world.rank)
        world.recv(source=right, tag=7)
        world.send(b"too late", dest=left, tag=7)


# ---- in the test ----


def test_a_ring_of_three_is_named_once(run, script):
    process = run.start("-n", 3, script(waits_in_a_ring), env={"PSP_DEADLOCK_WARNINGS": "0.4"})
    lines = lines_until(process, lambda lines: "deadlock" in "".join(lines[-1:]))
    for rank in range(3):
        waited = f"receive from rank {(rank + 1) % 3}, tag 7 ({FILE}:"
        assert 1 <= sum(f"rank {rank} has waited" in it and waited in it for it in lines) <= 2
        assert f"rank {rank} has waited" in lines[-1]
        assert waited in lines[-1]
    assert "deadlock: ranks 0, 1, 2 wait for each other" in lines[-1]
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=100)
    assert "deadlock" not in rest  # reported once
    for rank in range(3):
        end = f"rank {rank} was ended by SIGTERM; has waited"
        assert sum(it.startswith(f"pscompy run: {end}") for it in rest.splitlines()) == 1
    assert process.returncode == 128 + signal.SIGTERM


def dumped_by(rank, lines):
    """The lines of the last dump of a rank that is complete."""
    own = [it.removeprefix(f"[{rank}] ").strip() for it in lines if it.startswith(f"[{rank}] ")]
    dumps = "\n".join(own).split(f"<Session {rank}> ")
    return dumps[-2].splitlines() if len(dumps) > 2 else []


def test_the_dump_of_a_ring_of_three(run, script):
    process = run.start("-n", 3, "--label", "--dump-after", 1, script(waits_in_a_ring))

    def all_have_dumped(lines):
        """All ranks wait, have sent their message, and have got the one that nobody receives. The
        first dumps may show one that is not connected to both others yet."""
        dumps = ["\n".join(dumped_by(rank, lines)) for rank in range(3)]
        enough = ("waited for", "message from", "; 1 sent messages")
        return all(it.count(": UP over ") == 2 and all(map(it.count, enough)) for it in dumps)

    lines = lines_until(process, all_have_dumped)
    for rank in range(3):
        right, left = (rank + 1) % 3, (rank - 1) % 3
        own = dumped_by(rank, lines)
        assert f"receive from rank {right}, tag 7  <- waited for" in own, own
        assert f"message from rank {right}, tag {100 + right}, 17 bytes, arrived" in own, own
        for peer in (right, left):
            (line,) = (it for it in own if it.startswith(f"{peer} (") and ": UP over " in it)
            assert "lanes: 1; 1 sent messages" in line or peer == right, own
        assert any(f"{FILE}:" in it and "in waits_in_a_ring" in it for it in own), own
    assert process.poll() is None  # the dump has ended nobody


def test_a_dump_while_the_program_is_blocked_in_c(run, script):
    def blocks_in_c():
        with pscompy.World() as world:
            say("ready")
            libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
            libc.pthread_mutex_lock(mutex)
            libc.pthread_mutex_lock(mutex)  # no signal ends this wait
            world.barrier()

    process = run.start("-n", 2, "--label", script(blocks_in_c), env={"PSP_SIGQUIT": "1"})
    for _ in range(2):
        process.stdout.readline()
    process.send_signal(signal.SIGQUIT)

    def of_rank(rank, lines):
        return [it for it in lines if it.startswith(f"[{rank}] ") and "in blocks_in_c" in it]

    lines = lines_until(process, lambda it: of_rank(0, it) and of_rank(1, it))
    for rank in range(2):
        assert sum(it.startswith(f"[{rank}] <Session {rank}> ") for it in lines) == 1
    assert process.poll() is None


def test_a_dump_ends_nobody_that_has_no_session(run, script):
    """Rank 1 shows that the signal is sent; it would end rank 0."""

    def has_none():
        if own_rank() == 1:
            signal.signal(signal.SIGQUIT, lambda *_: say("caught"))
        say("ready")
        stay()

    process = run.start("-n", 2, "--dump-after", 0.2, script(has_none))
    lines = []
    while lines.count("ready\n") < 2 or lines[-3:] != ["caught\n"] * 3:
        lines.append(process.stdout.readline())
        assert lines[-1]
    assert process.poll() is None


def test_dumps_that_were_missed_are_not_made_up_for():
    """A launcher that was stopped for long makes one of them."""
    job, made = Job(Plan(["no-command"], 1, dump_after=1000.0)), []
    job._dump, job._dump_at = lambda: made.append(1), time.monotonic() - 1_000_000
    job._carry_out_orders()
    assert made == [1]
    assert job._time_left() > 0


def test_ranks_that_wait_one_after_the_other_are_no_deadlock(run, script, tmp_path):
    def wait_in_turn(folder):
        with pscompy.World() as world:
            if world.rank == 1:
                world.recv(source=0)
                expect_soon(Path(folder, "1").exists)
                world.send(b"later", dest=0)
            else:
                expect_soon(Path(folder, "0").exists)
                world.send(b"first", dest=1)
                world.recv(source=1)

    program = script(wait_in_turn, str(tmp_path))
    process = run.start("-n", 2, program, env={"PSP_DEADLOCK_WARNINGS": "1"})
    for rank in (1, 0):
        lines = lines_until(process, lambda it, me=rank: f"rank {me} has" in "".join(it[-1:]))
        assert "deadlock" not in "".join(lines)
        (tmp_path / str(1 - rank)).touch()
    assert "deadlock" not in process.communicate(timeout=100)[1]
    assert process.returncode == 0


def test_a_wait_that_may_be_over_is_no_deadlock():
    """A rank that has not looked at its wait again since it published it may wait no more."""

    def cycle(*beats):
        found = [Wait(7, it, 1.0, (1 - rank,), "recv") for rank, it in enumerate(beats)]
        return Cycle((0, 1), tuple(found))

    assert cycle(4, 6).goes_on(cycle(3, 5))
    assert not cycle(4, 5).goes_on(cycle(3, 5))
    assert not cycle(3, 6).goes_on(cycle(3, 5))


@pytest.mark.parametrize("how", ["barrier", "broadcast", "send", "objects"])
def test_ranks_that_wait_in_different_operations(run, script, how):
    """Rank 0 is in the operation, rank 1 waits for a message of rank 0."""

    def waits(how):
        with pscompy.World() as world:
            if world.rank == 1:
                world.recv(source=0, tag=9)
            elif how == "barrier":
                world.barrier()
            elif how == "broadcast":
                world.broadcast(bytearray(8), root=1)
            elif how == "send":
                world.send(bytes(10_000_000), dest=1, tag=1)
            else:
                world.recv_obj(source=1, tag=1)

    process = run.start("-n", 2, script(waits, how), env={"PSP_DEADLOCK_WARNINGS": "0.4"})
    lines = lines_until(process, lambda it: "deadlock: " in "".join(it[-1:]))
    assert "deadlock: ranks 0, 1" in lines[-1]


def test_a_deadlock_behind_rts_max_names_it(run, script):
    """Rank 0 waits for the first of its messages to be received, rank 1 for the last of them."""

    def waits():
        with pscompy.World() as world:
            if world.rank == 1:
                world.recv(source=0, tag=2)
            else:
                sends = [world.isend(bytes(4096), dest=1, tag=1) for _ in range(20)]
                world.isend(b"", dest=1, tag=2)
                sends[0].wait()

    settings = {"PSP_DEADLOCK_WARNINGS": "0.4", "PSP_RTS_MAX": "8", "PSP_RENDEZVOUS": "1000"}
    process = run.start("-n", 2, script(waits), env=settings)
    lines = lines_until(process, lambda it: "deadlock: " in "".join(it[-1:]))
    for rank in range(2):
        waited = [it for it in lines[:-1] if f"rank {rank} has waited" in it]
        assert waited
        assert all("(PSP_RTS_MAX)" in it for it in waited)
    assert lines[-1].count("(PSP_RTS_MAX)") == 2
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=100)
