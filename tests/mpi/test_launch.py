"""How programs get pscompy's MPI: `pscompy run --mpi`, `import pscompy.mpi`, and what there is
besides."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mpi.conftest import ROOT
from tests.mpi.starting import Starter

VERSION = """
    from mpi4py import MPI
    import sys

    ranks = MPI.COMM_WORLD.allreduce(1)
    print(MPI.Get_library_version().split()[0].strip("\\0"), ranks, *sys.argv[1:])
"""


@pytest.fixture
def start(site: Path, tmp_path: Path) -> Starter:
    return Starter(site, tmp_path)


def another_mpi() -> str:
    """The file of MPICH's wheel, which mpi4py finds by itself."""
    try:
        files = importlib.metadata.files("mpich") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "libmpi.so.12":
            return str(Path(str(file.locate())).resolve())
    pytest.skip("no MPICH beside mpi4py: pip install mpich")


# ---- pscompy run --mpi ----


def test_ours_wins_with_the_option_and_the_other_one_without(start: Starter) -> None:
    another_mpi()
    program = start.program(VERSION)
    with_option, without = (
        start.run(*option, "-n", "2", program) for option in (["--mpi"], ["-n", "2"])
    )
    assert with_option.lines == ["pscompy 2"] * 2, with_option.errors
    assert without.lines == ["MPICH 2"] * 2, without.errors


def test_ranks_that_agents_start_get_ours(start: Starter, tmp_path: Path) -> None:
    rsh = tmp_path / "rsh"
    rsh.write_text('#!/bin/sh\nshift\nexec env -i PATH="$PATH" HOME=/ sh -c "$*"\n')
    rsh.chmod(0o755)
    program = start.program(VERSION)
    ended = start.run("--mpi", "--hosts", "elsewhere:2", program, PSP_RSH=str(rsh))
    assert ended.lines == ["pscompy 2"] * 2, ended.errors


def test_children_are_spared_and_other_libraries_stay_preloaded(start: Starter) -> None:
    program = start.program(
        """
        import os, subprocess
        from mpi4py import MPI

        subprocess.run("echo $LD_PRELOAD", shell=True)
        subprocess.run("echo $LD_PRELOAD", shell=True, env=dict(os.environ))
        """
    )
    ended = start.run("--mpi", "--env", "LD_PRELOAD=libdl.so.2 libm.so.6", program)
    assert ended.lines == ["libdl.so.2:libm.so.6"] * 2, ended.errors
    assert start.run("--mpi", program).lines == ["", ""]


def test_a_package_without_the_library_says_how_to_build_it(start: Starter, tmp_path: Path) -> None:
    package = tmp_path / "pscompy_mpi"
    package.mkdir()
    for name in ("__init__.py", "places.py"):
        (package / name).write_text((ROOT / "mpi/pscompy_mpi" / name).read_text())
    ended = start.run("--mpi", "-c", "pass", PYTHONPATH=f"{ROOT}:{tmp_path}")
    assert ended.code == 2
    assert f"--mpi: {package}/libmpi.so.12 is not built" in ended.errors


# ---- programs that are not Python ----

SUM = """
#include <stdio.h>
#include <stdlib.h>
#include "pscompy_mpi/abi_mpich.h"

int MPI_Init(int *argc, char ***argv);
int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int MPI_Finalize(void);

int main(int argc, char **argv)
{
    int rank, sum = 0;

    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return 9;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d %s\\n", sum, getenv("LD_PRELOAD") ? "preloads" : "spares");
    if (argc > 1)
        MPI_Finalize();
    return argc > 2 ? atoi(argv[2]) : 0;
}
"""


@pytest.fixture
def in_c(start: Starter, tmp_path: Path) -> str:
    """A program in C that is linked to the library, and does not know where it is."""
    source, program = tmp_path / "sum.c", tmp_path / "sum"
    source.write_text(SUM)
    command = ["cc", f"-I{ROOT / 'mpi'}", str(source), str(start.library), "-o", str(program)]
    subprocess.run(command, check=True)
    return str(program)


@pytest.mark.parametrize("finalizes", [["finalizes"], []], ids=["finalizes", "does not"])
def test_a_program_in_c(start: Starter, in_c: str, finalizes: list[str]) -> None:
    ended = start.run("--mpi", "-n", "3", "--", in_c, *finalizes)
    assert ended.code == 0, ended.errors
    assert ended.lines == ["3 spares"] * 3


def test_the_code_of_a_program_in_c_is_that_of_the_job(start: Starter, in_c: str) -> None:
    assert start.run("--mpi", "-n", "2", "--", in_c, "finalizes", "7").code == 7


def test_a_program_in_c_says_what_it_needs(start: Starter, in_c: str) -> None:
    alone = {"LD_PRELOAD": str(start.library)}
    without = start.command(in_c, **alone)
    assert without.code == 1
    assert "start it by pscompy run --mpi -- program" in without.errors
    missing = start.command(in_c, **alone, PSCOMPY_MPI_LIBPYTHON="libpython3.99.so.1.0")
    assert missing.code == 1
    assert "Debian's package libpython3.99 has it" in missing.errors


# ---- import pscompy.mpi ----


@pytest.mark.parametrize("variable", [{}, {"MPI4PY_LIBMPI": "libmpi.so.40"}], ids=["", "variable"])
def test_an_import_before_mpi4py_takes_ours(start: Starter, variable: dict[str, str]) -> None:
    program = start.program("import pscompy.mpi\n" + VERSION.replace("\n    ", "\n"))
    ended = start.run("-n", "2", program, **variable)
    assert ended.lines == ["pscompy 2"] * 2, ended.errors


def test_python_runs_an_unchanged_program_and_a_module(start: Starter) -> None:
    program = start.program(VERSION)
    ended = start.python("-m", "pscompy.mpi", program, "-n", "word")
    assert ended.output == "pscompy 1 -n word\n", ended.errors
    ended = start.python("-m", "pscompy.mpi", "-m", "mpi4py.bench", "helloworld")
    assert ended.output.startswith("Hello, World! I am process 0 of 1"), ended.errors
    assert "usage: python -m pscompy.mpi" in start.python("-m", "pscompy.mpi", "-x").errors


@pytest.mark.parametrize(
    "before", ["import mpi4py.MPI", "import ctypes; ctypes.CDLL({!r}, ctypes.RTLD_GLOBAL)"]
)
def test_an_import_after_another_mpi_is_an_error(start: Starter, before: str) -> None:
    program = start.program(before.format(another_mpi()) + "\nimport pscompy.mpi\n")
    ended = start.python(program)
    assert ended.code == 1
    assert "ImportError: " in ended.errors
    assert "before, with MPICH" in ended.errors or "before, MPICH" in ended.errors


# ---- the end, and the launcher ----


def test_a_rank_signs_off_although_mpi4py_is_loaded(start: Starter) -> None:
    """The library runs on the bootstrap, and does not sign off by itself as another MPI does. Here
    mpi4py is imported in a thread."""
    program = start.program(
        """
        import os, threading
        from pscompy import PeerLost
        from pscompy.world.bootstrap import attach

        thread = threading.Thread(target=lambda: __import__("mpi4py.MPI"))
        thread.start()
        thread.join()
        me = attach()
        me.finalize()
        try:
            me.put("late", "value")
        except PeerLost:
            print("signed off", flush=True)
        os._exit(0)
        """
    )
    ended = start.run("--mpi", "-n", "2", program)
    assert ended.lines == ["signed off"] * 2, ended.errors


def test_a_world_of_the_program_beside_mpi(start: Starter) -> None:
    program = start.program(
        """
        import threading
        import pscompy

        thread = threading.Thread(target=lambda: __import__("mpi4py.MPI"))
        thread.start()
        thread.join()
        from mpi4py import MPI

        with pscompy.World() as world:
            world.send(b"ours", 1 - world.rank, tag=1)
            MPI.COMM_WORLD.send("theirs", 1 - world.rank, tag=1)
            print(MPI.COMM_WORLD.recv(tag=1), world.recv(tag=1).decode())
        """
    )
    ended = start.run("--mpi", "-n", "2", program)
    assert ended.code == 0, ended.errors
    assert ended.lines == ["theirs ours"] * 2


# ---- the Communicator of pscompy ----


def test_the_communicator_of_a_communicator(start: Starter) -> None:
    program = start.program(
        """
        import asyncio
        from mpi4py import MPI
        import pscompy
        import pscompy_mpi

        world = MPI.COMM_WORLD
        turned = world.Split(0, -world.rank)
        ours, peer = pscompy_mpi.communicator(turned), 1 - turned.rank
        assert ours is pscompy_mpi.communicator(turned)
        assert (ours.rank, ours.size) == (turned.rank, 2)
        turned.isend("by MPI", peer, tag=5).wait()
        ours.send_obj({"by": "pscompy"}, peer, tag=5)
        async def receive():
            return await ours.irecv_obj(tag=5)
        print(asyncio.run(receive()), turned.recv(tag=5))
        try:
            ours.recv(timeout=0)
        except pscompy.Timeout:
            print("timeout")
        turned.Free()
        try:
            ours.send(b"", peer)
        except pscompy.Closed:
            print("closed")
        try:
            pscompy_mpi.communicator(turned)
        except ValueError:
            print("no communicator")
        """
    )
    ended = start.run("--mpi", "-n", "2", program)
    texts = ["closed", "no communicator", "timeout", "{'by': 'pscompy'} by MPI"]
    assert ended.lines == sorted(texts * 2), ended.errors


# ---- pscompy info ----


def test_info_says_which_mpi_and_why(start: Starter) -> None:
    another_mpi()

    def told(*words: str, **environ: str) -> dict[str, str]:
        ended = start.command(sys.executable, "-m", "pscompy", *words, "info", "--json", **environ)
        found: dict[str, str] = json.loads(ended.output)["mpi4py"]
        return found

    library = str(start.library)
    by_launcher = told("run", "--mpi", "-n", "1", "-m", "pscompy")
    assert by_launcher["library"] == library
    assert by_launcher["reason"] == "LD_PRELOAD names it"
    by_variable = told(MPI4PY_LIBMPI=library)
    assert by_variable["version"].startswith("pscompy ")
    assert by_variable["reason"] == "MPI4PY_LIBMPI names it"
    by_itself = told()
    assert by_itself["version"].startswith("MPICH")
    assert by_itself["reason"].startswith("mpi4py finds it by itself")


def test_info_without_an_mpi(start: Starter) -> None:
    ended = start.python("-m", "pscompy", "info", MPI4PY_LIBMPI="nothing.so")
    assert ended.code == 0, ended.errors
    assert "mpi4py cannot be imported: " in ended.output
    assert "nothing.so" in ended.output
