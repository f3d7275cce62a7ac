"""PMIx: our client under Open MPI's mpirun.

PSCOMPY_TEST_OPENMPI is a folder with an Open MPI: bin/mpirun, and for one test a bin/python with
mpi4py and cffi. Without the variable an mpirun on the PATH is used.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pscompy
from pscompy.errors import Timeout
from pscompy.world.bootstrap import detect
from tests.waiting import expect_soon


def exchanges():
    me = detect()
    me.put(f"address-{me.rank}", f"{me.rank}:" + "a=b;c," * 900)
    me.put("short", "")
    me.barrier()
    for rank in range(me.size):
        assert me.get(f"address-{rank}", rank) == f"{rank}:" + "a=b;c," * 900
        assert me.get("short", rank) == ""
    me.put(f"later-{me.rank}", "value")
    me.barrier(timeout=30)
    assert me.get(f"later-{me.size - 1}", me.size - 1) == "value"
    print(me.rank, me.size, bool(me.job_id), flush=True)
    me.finalize()


def times_out():
    me, sign = detect(), Path(__file__).with_name("sign")
    if me.rank == 0:
        try:
            me.barrier(timeout=0.1)
        except Timeout:
            print("timeout", flush=True)
        sign.touch()
    expect_soon(sign.exists)
    me.barrier(timeout=30)
    me.finalize()


def rings():
    with pscompy.World() as world:
        for it in (world, world.dup()):
            request = it.irecv(source=(it.rank - 1) % it.size)
            it.send(b"%d" % it.rank, dest=(it.rank + 1) % it.size)
            print(it.rank, it.size, request.wait().decode(), flush=True)


def starts_a_child():
    with pscompy.World():
        command = [sys.executable, "-c", "import pscompy; pscompy.World()"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=50)
        print(told.returncode, told.stderr.splitlines()[-1], flush=True)


def aborts():
    world = pscompy.World()
    world.barrier()
    if world.rank == 1:
        world.abort(3)
    world.recv(source=1)


def reduces():
    from mpi4py import MPI

    with pscompy.World() as world:
        world.barrier()
        print(world.rank == MPI.COMM_WORLD.rank, MPI.COMM_WORLD.allreduce(world.rank), flush=True)


def opens_a_world():
    pscompy.World()


def lines(mpirun, n, program, python=sys.executable):
    done = mpirun("-n", n, python, program)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_values_are_exchanged(mpirun, script):
    assert lines(mpirun, 3, script(exchanges)) == ["0 3 True", "1 3 True", "2 3 True"]


def test_a_barrier_that_timed_out_is_gone_on_with(mpirun, script):
    assert lines(mpirun, 2, script(times_out)) == ["timeout"]


def test_a_world_and_its_duplicate(mpirun, script):
    assert lines(mpirun, 3, script(rings)) == sorted(["0 3 2", "1 3 0", "2 3 1"] * 2)


def test_mpi_and_a_world_in_one_process(mpirun, script):
    python = Path(mpirun.command[0]).with_name("python")
    needs = [python, "-c", "import mpi4py, cffi, pluggy"]
    if not python.exists() or subprocess.run(needs, capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has not mpi4py, cffi and pluggy")
    assert lines(mpirun, 2, script(reduces), python=python) == ["True 1"] * 2


def test_a_child_is_not_taken_for_its_rank(mpirun, script):
    told = lines(mpirun, 2, script(starts_a_child))
    assert len(told) == 2
    assert all(line.startswith("1 ") and "unset PMIX_RANK" in line for line in told)


def test_perf_measures_between_the_ranks_of_the_job(mpirun):
    options = ("-m", "pscompy", "perf", "--sizes", "8", "--seconds", "0.01", "--only", "latency")
    done = mpirun("-n", 2, sys.executable, *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("one way, us") == 1


def test_an_abort_ends_all_with_its_code(mpirun, script):
    assert mpirun("-n", 2, sys.executable, script(aborts)).returncode == 3


def test_a_launcher_that_is_gone_is_named(run, script):
    run.command, run.before_program = (sys.executable,), ()
    gone = {"PMIX_RANK": "0", "PMIX_NAMESPACE": "gone", "PMIX_PREFIX": "/nowhere"}
    done = run(script(opens_a_world), env=gone)
    assert done.returncode == 1
    assert "ConfigError" in done.stderr
    assert "PMIx" in done.stderr.splitlines()[-1]
