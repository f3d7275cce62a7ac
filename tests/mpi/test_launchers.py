"""Programs of mpi4py on pscompy's MPI under the launchers of other MPIs.

PSCOMPY_TEST_OPENMPI is a folder with an Open MPI: bin/mpirun, and for one test a bin/python with
mpi4py. Without the variable an mpirun on the PATH is used.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs import Launcher
from tests.launch.conftest import mpiexec, mpirun  # noqa: F401 (fixtures)


def sums() -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    text = MPI.Get_library_version().split()[0].strip("\0")
    print(f"{text} {comm.rank} of {comm.size} {comm.allreduce(comm.rank)}\n", end="", flush=True)


def ends_without_finalize() -> None:
    import mpi4py

    mpi4py.rc(finalize=False)
    sums()


def raises() -> None:
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 1:
        raise ValueError("on purpose")
    MPI.COMM_WORLD.recv(source=1)


@pytest.fixture(params=["mpiexec", "mpirun"])
def launcher(request: pytest.FixtureRequest) -> Launcher:
    found: Launcher = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def ours(site: Path) -> dict[str, str]:
    """The variables by which programs get pscompy's MPI."""
    library = str(site / "pscompy_mpi/libmpi.so.12")
    path = os.pathsep.join([Launcher().environ["PYTHONPATH"], str(site)])
    return {"LD_PRELOAD": library, "MPI4PY_LIBMPI": library, "PYTHONPATH": path}


@pytest.mark.parametrize("program", [sums, ends_without_finalize], ids=lambda it: it.__name__)
def test_other_launchers_start_the_same_programs(launcher, ours, script, program):
    done = launcher("-n", 2, sys.executable, script(program), env=ours)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"pscompy {rank} of 2 1" for rank in range(2)]


def test_a_rank_that_raises_ends_the_job(launcher, ours, script):
    done = launcher("-n", 2, sys.executable, script(raises), env=ours)
    assert done.returncode != 0
    assert "ValueError: on purpose" in done.stderr


def test_ours_wins_beside_open_mpi_and_theirs_without(mpirun, ours, script):  # noqa: F811
    """The Python is one whose environment has Open MPI."""
    python = Path(mpirun.command[0]).with_name("python")
    needs = [python, "-c", "import mpi4py, cffi, pluggy"]
    if not python.exists() or subprocess.run(needs, capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has not mpi4py, cffi and pluggy")
    versions = [subprocess.check_output([it, "--version"]) for it in (python, sys.executable)]
    if versions[0] != versions[1]:
        pytest.skip(f"{python} is another Python, for which pscompy is not built")
    with_ours = mpirun("-n", 2, python, script(sums), env=ours)
    assert with_ours.stdout.count("pscompy ") == 2, with_ours.stderr
    without = mpirun("-n", 2, python, script(sums))
    assert without.stdout.count("Open ") == 2, without.stderr
