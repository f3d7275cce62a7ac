"""The driver over a system's library, which no machine of ours has: that it is all there.

It is compiled against the header of the software NI, whose types are not a library's, but whose
names are.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pscompy

ROOT = Path(pscompy.get_include())
FOLDER = ROOT / "pscompy" / "plugins" / "portals"
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}"]


def symbols(file: Path, kind: str) -> set[str]:
    done = subprocess.run(["nm", kind, file], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines()}


def test_the_second_copy_is_whole_and_has_names_of_its_own(tmp_path: Path) -> None:
    made = tmp_path / "system.o"
    command = ["gcc", *FLAGS, f"-I{FOLDER / 'ni'}", "-c", "-o", made, FOLDER / "system.c"]
    subprocess.run(command, check=True)
    defined = {name for name in symbols(made, "-g") if name.startswith("psptl_")}
    missing = {name for name in symbols(made, "-u") if "psptl_" in name}
    assert missing == set()
    assert all(name.startswith("psptl_system_") for name in defined), defined
    assert "psptl_system_driver" in defined
