"""Other launchers than `pscompy run`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs import Launcher


@pytest.fixture
def mpiexec(run: Launcher) -> Launcher:
    """A launcher that uses MPICH's mpiexec."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        pytest.skip("no mpiexec: pip install mpich")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    if "HYDRA" not in version.stdout.upper():
        pytest.skip(f"{found} is not MPICH's")
    run.command, run.before_program = (found,), ()
    return run


def is_open_mpi(path: str | Path) -> bool:
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" in told.stdout


@pytest.fixture
def mpirun(run: Launcher) -> Launcher:
    """Open MPI's launcher, with the interface of `run`."""
    folder = os.environ.get("PSCOMPY_TEST_OPENMPI")
    path = Path(folder) / "bin/mpirun" if folder else shutil.which("mpirun")
    if not path or not is_open_mpi(path):
        pytest.skip("PSCOMPY_TEST_OPENMPI names no Open MPI, nor is there one on the PATH")
    run.command = (str(path), "--allow-run-as-root", "--oversubscribe")
    run.before_program = ()
    return run
