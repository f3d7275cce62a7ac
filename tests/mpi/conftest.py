"""What the tests of mpi/ share."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

if importlib.util.find_spec("pscompy_mpi") is None:  # not installed
    sys.path.insert(0, str(ROOT / "mpi"))


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The folder of an installed mpi4py that has a build for MPICH's ABI."""
    spec = importlib.util.find_spec("mpi4py")
    if spec is None or spec.origin is None:
        pytest.skip("no mpi4py: pip install mpi4py")
    folder = Path(spec.origin).parent
    if not any(folder.glob("MPI.mpich*.so")):
        pytest.skip(f"{folder} has no build for MPICH's ABI: pip install mpi4py, from PyPI")
    return folder
