"""The end of a World, and processes that hold more than one World, by real jobs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from pathlib import Path

import pytest

import pscompy
from pscompy.api.c.guard import guard
from tests.waiting import asleep, expect_soon, stay


def test_what_was_sent_before_the_end_arrives(run, script, tmp_path):
    """Rank 1 is already closing while rank 0 still needs rank 1's progress to receive the last
    message."""

    def sends_and_closes(file):
        with pscompy.World() as world:
            if world.rank == 1:
                for size in (10, 100_000, 20_000_000):
                    world.isend(b"x" * size, 0)
                Path(file).write_text(f"{os.getpid()}\n")
            else:
                expect_soon(lambda: Path(file).exists() and Path(file).read_text().endswith("\n"))
                closing = int(Path(file).read_text())
                expect_soon(lambda: asleep(closing, closing))
                print([len(world.recv(source=1)) for _ in range(3)])

    program = script(sends_and_closes, str(tmp_path / "closing"))
    assert run.lines(2, program) == ["[10, 100000, 20000000]"]


def test_an_exception_does_not_wait_for_others(run, script):
    def raises():
        with pscompy.World() as world:
            if world.rank == 1:
                raise ValueError("mine")
            stay()

    done = run("-n", 3, script(raises))
    assert done.returncode == 1
    assert "ValueError: mine" in done.stderr
    assert "rank 1 exited with code 1" in done.stderr


def test_ctrl_c_ends_the_wait_for_others(run, script):
    def waits():
        with pscompy.World() as world:
            world.barrier()
            print("ready", flush=True)
            if world.rank == 0:
                stay()

    process = run.start("-n", 6, script(waits))
    for _ in range(6):
        assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGINT
    assert err.count("KeyboardInterrupt") >= 1


@pytest.mark.parametrize("how", ["close", "exit"])
def test_the_wait_for_a_rank_that_does_not_come_is_bounded(run, script, tmp_path, how):
    def leaves(how, folder):
        with pscompy.World() as world:
            world.barrier()
            Path(folder, f"passed {world.rank}").touch()
            if world.rank == 2:
                expect_soon(lambda: all(Path(folder, f"passed {rank}").exists() for rank in (0, 1)))
                world.close() if how == "close" else os._exit(0)
                expect_soon(lambda: all(Path(folder, f"ended {rank}").exists() for rank in (0, 1)))
            print("end", flush=True)
        Path(folder, f"ended {world.rank}").touch()

    program = script(leaves, how, str(tmp_path))
    done = run("-n", 3, program, env={"PSP_FINALIZE_TIMEOUT": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("end") >= 2
    if how == "close":
        assert "the end of their World within 1 s (PSP_FINALIZE_TIMEOUT)" in done.stderr


def test_a_rank_that_waits_for_others_says_so(run, script, tmp_path):
    def comes_late(file):
        if os.environ["PMI_RANK"] == "1":
            expect_soon(Path(file).exists)
        with pscompy.World() as world:
            print(world.rank, flush=True)

    program = script(comes_late, str(tmp_path / "come"))
    job = run.start("-n", 2, program, env={"PSP_DEADLOCK_WARNINGS": "0.3"})
    assert "rank 0 of 2 has waited 0.3 s for ranks" in job.stderr.readline()
    (tmp_path / "come").touch()
    assert sorted(job.communicate(timeout=100)[0].splitlines()) == ["0", "1"]


@pytest.mark.parametrize("launcher", ["run", "mpiexec"])
def test_a_process_may_open_one_world_after_another(request, launcher, script):
    def opens_three():
        for turn in range(3):
            with pscompy.World() as world:
                world.send(bytes([turn]), (world.rank + 1) % world.size)
                assert bytes(world.recv()) == bytes([turn])
        os.write(1, b"ok\n")

    launch = request.getfixturevalue(launcher)
    done = launch("-n", 3, *launch.python(script(opens_three)))
    assert (done.returncode, done.stdout) == (0, "ok\n" * 3), done.stderr


@pytest.mark.parametrize("launcher", ["run", "mpiexec"])
@pytest.mark.parametrize("first", ["MPI", "World"])
def test_mpi_and_a_world_in_one_process(request, launcher, first, script):
    def uses_both(first):
        if first == "MPI":
            from mpi4py import MPI
        with pscompy.World() as world:
            from mpi4py import MPI

            world.send(b"x", (world.rank + 1) % world.size)
            assert bytes(world.recv()) == b"x"
            assert MPI.COMM_WORLD.allreduce(world.rank) == 3
            assert MPI.COMM_WORLD.rank == world.rank

    pytest.importorskip("mpi4py", reason="no mpi4py: pip install mpi4py mpich")
    launch = request.getfixturevalue(launcher)
    done = launch("-n", 3, *launch.python(script(uses_both, first)))
    assert (done.returncode, done.stderr) == (0, "")


def child():
    try:
        pscompy.World()
    except pscompy.ConfigError as error:
        print(error)
    with pscompy.Session() as session:
        print(bool(session.listen().address))


def test_a_child_of_a_rank_is_no_rank(run, script):
    def forks():
        with pscompy.World() as world:
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join()
            world.barrier()

    lines = run.lines(2, script(forks))
    assert [line[:32] for line in lines] == ["True"] * 2 + ["this process was forked from ran"] * 2


@pytest.mark.parametrize("way", ["at the end of its block", "by an exception", "by close"])
def test_a_child_that_leaves_the_world_says_nothing_of_its_parent(run, script, way):
    def forks(way):
        with pscompy.World() as world:
            if world.rank == 0 and not os.fork():
                if way == "by an exception":
                    sys.exit(0)
                if way == "by close":
                    world.close()
                world.__exit__(None, None, None)
                os._exit(0)
            if world.rank == 0:
                assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
                world.send(b"the parent is there", dest=1)
            else:
                print(bytes(world.recv(source=0)).decode())

    assert run.lines(2, script(forks, way)) == ["the parent is there"]


def test_a_child_of_a_rank_does_not_talk_to_the_launcher(run, script):
    def forks():
        with pscompy.World() as world:
            if world.rank == 0 and not os.fork():
                try:
                    sys.stdout.write(f"{world.modules}\n")
                except pscompy.Closed as error:
                    sys.stdout.write(f"{error}\n")
                world.abort(5)
            if world.rank == 0:
                assert os.waitstatus_to_exitcode(os.wait()[1]) == 5

    (line,) = run.lines(2, script(forks))
    assert line.startswith("inherited through fork")


def test_close_in_a_finalizer_happens_in_the_background(run, script):
    def closes_inside():
        world = pscompy.World()
        if world.rank == 0:
            with guard:
                world.close()
            stay()
        try:
            world.recv(source=0)
        except pscompy.Closed:
            print("closed", flush=True)
        world.abort(3)

    done = run("-n", 2, script(closes_inside))
    assert (done.stdout, "Error" in done.stderr) == ("closed\n", False), done.stderr


def test_a_rank_that_computes_is_connected_to(run, script, tmp_path):
    def computes(file):
        with pscompy.World() as world:
            if world.rank == 0:
                while not Path(file).exists():
                    pass
                print(bytes(world.recv(source=1)))
            else:
                world.send(b"meanwhile", 0)
                Path(file).touch()

    assert run.lines(2, script(computes, str(tmp_path / "sent"))) == ["b'meanwhile'"]


@pytest.mark.parametrize("transport", [{}, {"PSP_SHM": "0"}])
def test_ranks_end_with_long_sends_that_nobody_receives(run, script, transport):
    """Each rank leaves its World at once, although PSP_SHUTDOWN_TIMEOUT is longer than the test."""

    def leaves():
        with pscompy.World() as world:
            for _ in range(20):
                world.isend(bytes(1_000_000), dest=1 - world.rank, tag=1)
            world.barrier()

    settings = {**transport, "PSP_SHUTDOWN_TIMEOUT": "1000"}
    done = run("-n", 2, script(leaves), env=settings)
    assert done.returncode == 0
    assert done.stderr == ""
