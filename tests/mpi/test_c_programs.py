"""Programs in C: compiled, linked to the library, and started by `pscompy run --mpi`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.mpi.conftest import ROOT
from tests.mpi.starting import Starter

SOURCE = Path(__file__).with_name("c_program.c")


@pytest.fixture(scope="module")
def program(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, which does not know where the library is."""
    path = tmp_path_factory.mktemp("program") / "program"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    folders = [f"-I{built / 'made'}", f"-I{ROOT / 'mpi'}"]
    command = ["cc", *flags, *folders, SOURCE, built / "libmpi.so.12", "-o", path]
    subprocess.run(command, check=True)
    return path


@pytest.fixture
def start(site: Path, tmp_path: Path) -> Starter:
    return Starter(site, tmp_path)


@pytest.mark.parametrize("shm", [pytest.param("1", id="shm"), pytest.param("0", id="tcp")])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_program_in_c(start: Starter, program: Path, ranks: int, shm: str) -> None:
    ended = start.run("--mpi", "-n", str(ranks), "--", program, PSP_SHM=shm)
    assert ended.lines == ["well"] * ranks, ended.errors
    assert ended.code == 0


def test_a_program_whose_init_fails_ends(start: Starter, program: Path) -> None:
    """Without a launcher nobody names a Python; few programs look at what MPI_Init returns."""
    ended = start.command(program, LD_LIBRARY_PATH=str(start.library.parent))
    assert "MPI_Init: this program is not Python, and needs one" in ended.errors
    assert (ended.code, ended.lines) == (1, [])
