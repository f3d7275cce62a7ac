"""The numbers of abi_mpich.h, compared with those that mpi4py has when it runs on MPICH."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pscompy_mpi import constants

from tests.mpi.conftest import ROOT

HEADER = ROOT / "mpi/pscompy_mpi/abi_mpich.h"

# Prints the constants and handles, without MPI_Init.
NUMBERS = """
import json
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI

if MPI.Get_library_version().startswith("MPICH"):
    numbers = {}
    for name, it in vars(MPI).items():
        if type(it) is int:
            numbers[f"MPI_{name}"] = it
        elif isinstance(it, (MPI.Datatype, MPI.Comm, MPI.Group, MPI.Op, MPI.Errhandler, MPI.Info,
                             MPI.Request, MPI.Message, MPI.Win, MPI.Session)):
            numbers[f"MPI_{name}"] = MPI._handleof(it)
    numbers["sizeof(MPI_Status)"] = MPI._sizeof(MPI.Status)
    for address in (MPI.BOTTOM, MPI.IN_PLACE, MPI.BUFFER_AUTOMATIC):
        numbers[f"(intptr_t)MPI_{address!r}"] = int(address)
    for place, name in ((MPI.F_SOURCE, "SOURCE"), (MPI.F_TAG, "TAG"), (MPI.F_ERROR, "ERROR")):
        numbers[f"offsetof(MPI_Status, MPI_{name})"] = 4 * place
    print(json.dumps(numbers))
"""


@pytest.fixture(scope="module")
def mpich(wheel: Path) -> dict[str, int]:
    command = [sys.executable, "-c", NUMBERS]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if not process.stdout:
        pytest.skip(f"mpi4py does not run on MPICH: pip install mpich. {process.stderr[-200:]}")
    numbers: dict[str, int] = json.loads(process.stdout)
    return {name: it & 0xFFFFFFFF for name, it in numbers.items()}


def test_numbers_are_those_of_mpich(mpich: dict[str, int], tmp_path: Path) -> None:
    """Every number that both know is the same."""
    text = HEADER.read_text()
    names = [it for it in mpich if "(" in it or defined(it.removeprefix("MPI_"), text)]
    assert len(names) > 200
    assert values(names, tmp_path) == {name: mpich[name] for name in names}


def test_python_has_the_numbers_of_c(tmp_path: Path) -> None:
    numbers = {f"MPI_{name}": it for name, it in constants.NUMBERS.items()}
    text = HEADER.read_text()
    names = [it for it in numbers if defined(it.removeprefix("MPI_"), text)]
    assert len(names) > 200
    assert values(names, tmp_path) == {name: numbers[name] & 0xFFFFFFFF for name in names}


def test_python_says_what_there_is_not() -> None:
    assert constants.ERR_COMM == 5
    with pytest.raises(AttributeError, match="has no MPI_ERR_COM"):
        constants.ERR_COM  # noqa: B018


def defined(name: str, header: str) -> bool:
    return re.search(rf"\bMPI_{name} =|\bX\((MPI_)?{name},", header) is not None


def values(names: list[str], folder: Path) -> dict[str, int]:
    """The values of expressions as C has them with the header."""
    lines = [f'    printf("%u %s\\n", (unsigned)({it}), "{it}");' for it in names]
    source = folder / "values.c"
    head = f'#include <stdio.h>\n#include "{HEADER}"\nint main(void)\n{{'
    source.write_text("\n".join([head, *lines, "    return 0;", "}", ""]))
    program = folder / "values"
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Werror", source, "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return {name: int(it) for it, name in (line.split(" ", 1) for line in printed.splitlines())}
