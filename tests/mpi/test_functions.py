"""The table of MPI's functions, and the C that is made of it.

mpi4py's wheel says what a library of MPICH's ABI must export, and how mpi4py calls it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pscompy_mpi import generate
from pscompy_mpi.functions import CODES, KINDS, ROWS, WHERE, Row

from tests.mpi.conftest import ROOT

FLAGS = ["-std=c11", "-fvisibility=hidden", "-fPIC", "-Wall", "-Wextra", "-Werror", "-pedantic"]
# Fortran's numbers of handles: the table takes all handles for int, as the ABI does.
HANDLES = r"MPI_(Comm|Group|Datatype|Op|Errhandler|Info|Request|Message|Win|Fint)\b"
# types of MPI 1, which are the same
OLDER = {
    "MPI_Copy_function": "MPI_Comm_copy_attr_function",
    "MPI_Delete_function": "MPI_Comm_delete_attr_function",
    "MPI_Handler_function": "MPI_Comm_errhandler_function",
}


def exported() -> set[str]:
    return {symbol for row in ROWS for symbol in row.symbols}


def declined() -> set[str]:
    """What mpi4py is to find missing."""
    forms = [row for row in ROWS if row.where in ("absent", "missing")]
    return {f"MPI_{row.name}{end}" for row in forms for end in ("", "_c")}


def wanted(folder: Path, letter: str) -> set[str]:
    """The symbols of MPI that mpi4py wants: strong (U) or weak (w)."""
    if shutil.which("nm") is None:
        pytest.skip("no nm: install binutils")
    [extension, *_] = folder.glob("MPI.mpich*.so")
    command = ["nm", "-D", "--undefined-only", extension]
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


def test_what_is_made_compiles(tmp_path: Path) -> None:
    """The object has all that is exported, but for what is written by hand."""
    generate.write(tmp_path)
    made = tmp_path / "functions.so"
    folders = [f"-I{tmp_path}", f"-I{ROOT / 'mpi'}"]
    subprocess.run(
        ["gcc", *FLAGS, *folders, "-shared", tmp_path / "functions.c", "-o", made], check=True
    )
    command = ["nm", "-D", "--defined-only", made]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    by_hand = {symbol for row in ROWS if row.where == "c" for symbol in written(row)}
    assert set(re.findall(r"\b(MPI_\w+)", text)) == exported() - by_hand


def written(row: Row) -> set[str]:
    """The functions that somebody writes for a row of C: the form with MPI_Count, if any."""
    return {it for it in row.symbols if not row.two or it.endswith("_c")}


def test_files_are_written_once(tmp_path: Path) -> None:
    """A second run leaves them as they are, so that nothing is compiled again."""
    generate.write(tmp_path)
    before = {it: it.stat().st_mtime_ns for it in tmp_path.iterdir()}
    generate.write(tmp_path)
    assert {it: it.stat().st_mtime_ns for it in tmp_path.iterdir()} == before


def test_list_names_every_function() -> None:
    named = set(re.findall(r"`(\w+)`", generate.listing()))
    assert named == {row.name for row in ROWS if row.where != "data"}
