"""One World of modules that were started by different launchers.

PSCOMPY_TEST_OPENMPI is a folder with an environment in which mpi4py runs on Open MPI: bin/mpirun
and bin/python, which need not have pscompy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cffi
import pytest
from namespaces import ROOT, finished

import pscompy
from tests.names import A_KEY


def sums():
    if "mpi" in sys.argv:
        from mpi4py import MPI

        world = pscompy.World.from_mpi(MPI.COMM_WORLD, join=os.environ["WORLD"])
    else:
        world = pscompy.World()
    with world:
        if world.rank == 0:
            total = sum(int(world.recv()) for _ in range(world.size - 1))
            for rank in range(1, world.size):
                world.send(b"%d" % total, dest=rank)
        else:
            world.send(b"%d" % world.rank, dest=0)
            total = int(world.recv(source=0))
        line = f"{world.rank} of {world.size}: {total} over {world[0].transport}\n"
        os.write(1, line.encode())


def mpich() -> str:
    found = shutil.which(str(Path(sys.executable).with_name("mpiexec"))) or shutil.which("mpiexec")
    if not found:
        pytest.skip("no mpiexec: pip install mpich")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    if "HYDRA" not in told.stdout.upper():
        pytest.skip(f"{found} is not MPICH's")
    return found


def openmpi() -> Path:
    folder = os.environ.get("PSCOMPY_TEST_OPENMPI")
    if not folder:
        pytest.skip("PSCOMPY_TEST_OPENMPI names no environment with mpi4py on Open MPI")
    return Path(folder)


def lines(process: subprocess.Popen[str]) -> list[str]:
    return finished(process)[0].splitlines()


def expected(transports: list[str]) -> list[str]:
    return [f"{rank} of 4: 6 over {name}" for rank, name in enumerate(transports)]


def start_mpich(machine, program):
    return machine.start(
        machine.module(1), mpich(), "-n", 2, sys.executable, program,
        PSP_MSA_MODULE_ID=1, PSP_GW_SERVER=machine.servers(1), PSP_JOIN="sum:2",
    )  # fmt: skip


def test_a_module_under_mpich(machine, script):
    machine.start_gateway(1)
    program = script(sums)
    first = start_mpich(machine, program)
    second = machine.ranks(2, 2, program, PSP_JOIN="sum:2")
    assert sorted(lines(first) + lines(second)) == expected(["", "shm", "gateway", "gateway"])


@pytest.mark.parametrize("way", ["from_mpi", "pmix"])
def test_modules_under_mpich_and_open_mpi(way, machine, script, tmp_path):
    folder = openmpi()
    machine.start_gateway(1)
    program = script(sums)
    first = start_mpich(machine, program)
    missing = tmp_path / "missing"  # packages that pscompy needs and the Open MPI environment lacks
    missing.mkdir()
    installed = Path(cffi.__file__).parents[1]
    for name in ("cffi", "pluggy", "pycparser", *(it.name for it in installed.glob("_cffi_b*.so"))):
        if (installed / name).exists():
            (missing / name).symlink_to(installed / name)
    packages = f"{ROOT}:{ROOT}/gateway"
    second = machine.start(
        machine.module(2), folder / "bin/mpirun", "--allow-run-as-root", "--oversubscribe",
        "-n", 2, folder / "bin/python", program, *(["mpi"] if way == "from_mpi" else []),
        PSP_MSA_MODULE_ID=2, PSP_GW_SERVER=machine.servers(2), PYTHONPATH=f"{packages}:{missing}",
        **{"WORLD" if way == "from_mpi" else "PSP_JOIN": "sum:2"},
    )  # fmt: skip
    assert sorted(lines(first) + lines(second)) == expected(["", "shm", "gateway", "gateway"])


def test_labels_are_the_ranks_of_the_joined_world(run, script):
    """Before the World opens, a job knows only its own ranks."""

    def prints():
        print("begins", flush=True)
        with pscompy.World() as world:
            print("rank", world.rank, flush=True)

    gateway = subprocess.Popen(
        [sys.executable, "-m", "pscompy_gateway", "run", *["tcp@127.0.0.1:0"] * 2],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PSP_KEY": A_KEY},
    )
    try:
        places = re.findall(r"psp://([\d.:]+)", gateway.stdout.readline())
        env = {"PSP_KEY": A_KEY, "PSP_JOIN": "labelled:2"}
        program = script(prints)
        jobs = [
            run.start(
                *("-n", 2, "--label", "--module", module, program),
                env={**env, "PSP_GW_SERVER": place},
            )
            for module, place in enumerate(places, 1)
        ]
        told = [job.communicate(timeout=200) for job in jobs]
    finally:
        gateway.kill()
        gateway.communicate()
    assert [sorted(out.splitlines()) for out, _ in told] == [
        ["[0] begins", "[0] rank 0", "[1] begins", "[1] rank 1"],
        ["[0] begins", "[1] begins", "[2] rank 2", "[3] rank 3"],
    ], told
