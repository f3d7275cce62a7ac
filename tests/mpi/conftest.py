"""Fixtures that the tests of mpi/ share."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.mpi.programs import Programs

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


@pytest.fixture(scope="session")
def built(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library, built for the tests; mpi4py is there, too."""
    from pscompy_mpi.build import build

    folder = tmp_path_factory.mktemp("built")
    build(folder)
    return folder


@pytest.fixture(scope="session")
def site(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as an installation has it: the library, and no sources."""
    folder = tmp_path_factory.mktemp("site")
    without = shutil.ignore_patterns("src", "*.so*", "__pycache__")
    shutil.copytree(ROOT / "mpi/pscompy_mpi", folder / "pscompy_mpi", ignore=without)
    for path in (built / "libmpi.so.12", built / "_host.so"):
        shutil.copy(path, folder / "pscompy_mpi")
    return folder


@pytest.fixture
def programs(built: Path, tmp_path: Path) -> Programs:
    from tests.mpi.programs import Programs

    return Programs(built, tmp_path)
