"""Other launchers than `pscompy run`."""

from __future__ import annotations

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
