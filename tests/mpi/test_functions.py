"""The table of MPI's functions, and the C that is made of it.

mpi4py's wheel says what a library of MPICH's ABI must export, and how mpi4py calls it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pscompy_mpi import generate
from pscompy_mpi.functions import CODES, WHERE
from pscompy_mpi.rows import KINDS, ROWS, Row

from tests.mpi.conftest import ROOT

FLAGS = ["-std=c11", "-fvisibility=hidden", "-fPIC", "-Wall", "-Wextra", "-Werror", "-pedantic"]
# Fortran's numbers of handles: the table takes all handles for int, as the ABI does.
HANDLES = r"MPI_(Comm|Group|Datatype|Op|Errhandler|Info|Request|Message|Win|Fint)\b"
# A program of mpi4py on a library in which nothing works.
NOTHING_IMPLEMENTED = """
import mpi4py
mpi4py.rc.initialize = mpi4py.rc.finalize = False
from mpi4py import MPI

for function in (MPI.Is_initialized, MPI.Info.Create, MPI.COMM_SELF.Get_rank):
    try:
        function()
    except NotImplementedError:
        continue
    raise SystemExit(f"{function} is there")
"""
# types of MPI 1, which are the same
OLDER = {
    "MPI_Copy_function": "MPI_Comm_copy_attr_function",
    "MPI_Delete_function": "MPI_Comm_delete_attr_function",
    "MPI_Handler_function": "MPI_Comm_errhandler_function",
}


def exported() -> set[str]:
    return {symbol for row in ROWS for symbol in row.symbols}


def declined() -> set[str]:
    """The symbols that mpi4py is to find missing."""
    forms = [row for row in ROWS if row.where in ("absent", "missing")]
    return {f"MPI_{row.name}{end}" for row in forms for end in ("", "_c")}


def wanted(folder: Path, letter: str) -> set[str]:
    """The symbols of MPI that mpi4py wants: strong (U) or weak (w)."""
    if shutil.which("nm") is None:
        pytest.skip("no nm: install binutils")
    [extension, *_] = folder.glob("MPI.mpich*.so")
    command = ["nm", "-D", "--undefined-only", str(extension)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(rf"^ *{letter} (MPI_\w+)", text, re.M))


def test_strong_symbols_are_exported(wheel: Path) -> None:
    """Python could not load mpi4py without one of them."""
    strong = wanted(wheel, "U")
    assert strong
    assert strong <= exported()


def test_weak_symbols_are_exported_or_declined(wheel: Path) -> None:
    weak = wanted(wheel, "w")
    assert weak
    assert weak <= exported() | declined()


def test_the_abi_is_not_the_standard_one() -> None:
    """mpi4py would load another build."""
    assert not any(it.startswith("MPI_Abi_") for it in exported())


def test_rows_are_sound() -> None:
    names = Counter(symbol for row in ROWS for symbol in row.symbols)
    assert [name for name, n in names.items() if n > 1] == []
    assert {row.where for row in ROWS} == set(WHERE)
    assert {row.name for row in ROWS if row.where in ("c", "python") and not row.room} == set()
    assert {kind.code for kind in KINDS.values()} == set(CODES)


def test_prototypes_agree_with_mpi4py(wheel: Path) -> None:
    """mpi4py declares each function for itself, without `const`."""
    known = dict(declarations((wheel / "libmpi.pxd").read_text()))
    compared = {name: it for name, it in prototypes().items() if name in known}
    assert len(compared) > 400
    assert compared == {name: known[name] for name in compared}


def declarations(text: str) -> Iterator[tuple[str, str]]:
    """Each function of libmpi.pxd, and the types of its arguments."""
    pattern = r"^ +(?:int|double|MPI_\w+) +(MPI_\w+) *\((.*?)\) *(?:#.*)?$"
    for name, arguments in re.findall(pattern, text, re.M):
        yield name, shape(name, arguments)


def prototypes() -> dict[str, str]:
    """Each function of functions.h, and the types of its arguments."""
    text = re.sub(r"\s+", " ", generate.header())
    found = re.findall(r"(MPI_\w+)\(([^;]*)\);", text)
    return {name: shape(name, re.sub(r"\w+(?= *(,|\[|$))", "", it)) for name, it in found}


def shape(name: str, arguments: str) -> str:
    """The types without what makes no difference to a call."""
    text = re.sub(r"\bconst\b|\bvoid$|\s", "", arguments.replace("[3]", "")).replace("[]", "*")
    for older, newer in OLDER.items():
        text = text.replace(older, newer)
    if re.search(r"_(c2f|f2c|toint|fromint)$", name) and "Status" not in name:
        text = re.sub(HANDLES, "int", text)
    return text


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that is made of the table, as C and as objects."""
    folder = tmp_path_factory.mktemp("made")
    generate.write(folder)
    (folder / "stand_ins.c").write_text(generate.stand_ins())
    for name in ("functions", "stand_ins"):
        compile_c("-c", folder / f"{name}.c", "-o", folder / f"{name}.o", folder=folder)
    return folder


def compile_c(*arguments: str | Path, folder: Path) -> None:
    command: list[str | Path] = ["gcc", *FLAGS, f"-I{folder}", f"-I{ROOT / 'mpi'}", *arguments]
    subprocess.run(command, check=True)


def linked(made: Path) -> Path:
    """A library of one object."""
    library = made.with_suffix(".so")
    subprocess.run(["gcc", "-shared", made, "-o", library], check=True)
    return library


def defined(library: Path) -> set[str]:
    """The symbols that a library exports."""
    command = ["nm", "-D", "--defined-only", str(library)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\b(MPI_\w+)", text))


def test_what_is_made_has_what_nobody_writes(made: Path) -> None:
    """Together with what is written by hand that is all that is exported."""
    by_hand = {symbol for row in ROWS if row.where == "c" for symbol in written(row)}
    assert defined(linked(made / "functions.o")) == exported() - by_hand
    assert defined(linked(made / "stand_ins.o")) == by_hand


def test_the_library_exports_the_table(built: Path) -> None:
    assert defined(built / "libmpi.so.12") == exported()


def written(row: Row) -> set[str]:
    """The functions that somebody writes for a row of C: the form with MPI_Count, if any."""
    return {it for it in row.symbols if not row.two or it.endswith("_c")}


def test_what_is_made_passes_arguments_on(made: Path) -> None:
    """entries.c stands for what is written by hand, and asserts what it gets."""
    program = made / "entries"
    sources = [made / "functions.o", made / "stand_ins.o", Path(__file__).with_name("entries.c")]
    compile_c(*sources, "-o", program, folder=made)
    subprocess.run([program], check=True, timeout=60)


def test_mpi4py_loads_what_is_made(made: Path, wheel: Path) -> None:
    """With everything absent mpi4py is imported, and its functions are not implemented."""
    library = made / "libmpi.so.12"
    objects = [made / "functions.o", made / "stand_ins.o"]
    compile_c("-shared", f"-Wl,-soname,{library.name}", *objects, "-o", library, folder=made)
    command = [sys.executable, "-c", NOTHING_IMPLEMENTED]
    places = os.environ | {"LD_PRELOAD": str(library), "MPI4PY_LIBMPI": str(library)}
    subprocess.run(command, check=True, timeout=300, env=places)


def test_files_are_written_once(tmp_path: Path) -> None:
    """A second run leaves them as they are, so that nothing is compiled again."""
    generate.write(tmp_path)
    before = {it: it.stat().st_mtime_ns for it in tmp_path.iterdir()}
    generate.write(tmp_path)
    assert {it: it.stat().st_mtime_ns for it in tmp_path.iterdir()} == before


def test_list_names_every_function() -> None:
    named = set(re.findall(r"`(\w+)`", generate.listing()))
    assert named == {row.name for row in ROWS if row.where != "data"}
