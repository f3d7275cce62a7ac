"""portals over a library of the machine, which is used wherever there is one.

No machine of ours has one. So it is made of the software NI, and found by the loader as a system's
library is; the plug-in is built once more, with a <portals4.h> that it finds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pscompy
from pscompy.testing.process import BOUND

ROOT = Path(pscompy.get_include())
FOLDER = ROOT / "pscompy" / "plugins" / "portals"
FUNCTIONS = {
    "PtlNIFini": "ni_fini",
    "PtlGetPhysId": "get_id",
    **{f"Ptl{name}": name.lower() for name in ("Put", "Get")},
    **{
        f"Ptl{kind}{verb}": f"{kind}_{verb}".lower()
        for kind, verbs in {
            "PT": ("Alloc", "Free", "Enable"),
            "EQ": ("Alloc", "Free", "Poll"),
            "MD": ("Bind", "Release"),
            "ME": ("Append", "Unlink", "Search"),
        }.items()
        for verb in verbs
    },
    "PtlPTEnable": "pt_user_enable",
}

WHICH = """
import pscompy

with pscompy.World() as world:
    if world.rank == 0:
        world.send(b"connect", dest=1)
        world.recv()
        print(world[1].transport)
        print(world[1].explain())
    else:
        world.send(world.recv(), dest=0)
"""


def make_library(folder: Path) -> None:
    """Under the names of the specification, which the NI in pscompy does not export."""
    sources = [*FOLDER.glob("ni/*.c"), Path(__file__).parent / "library.c"]
    names = [f"-Wl,--defsym,{theirs}=psni_{ours}" for theirs, ours in FUNCTIONS.items()]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-pthread", f"-I{ROOT}", f"-I{FOLDER}/ni"]
    out = ["-shared", "-o", folder / "libportals.so.4"]
    subprocess.run(["gcc", *flags, *names, *out, *sources], check=True)


def make_package(folder: Path) -> None:
    """pscompy as it stands here, with a plug-in whose build has found a library."""
    ignored = shutil.ignore_patterns("__pycache__", "_native.c", "*.o")
    shutil.copytree(ROOT / "pscompy", folder / "pscompy", ignore=ignored)
    build = "import sys; sys.path.insert(0, '')\nfrom runpy import run_path\n"
    build += "run_path('pscompy/plugins/portals/build.py')['ffibuilder'].compile()"
    for old in (folder / "pscompy/plugins/portals").glob("_native*.so"):
        old.unlink()
    environ = {**os.environ, "CFLAGS": f"-I{FOLDER}/ni"}
    subprocess.run([sys.executable, "-c", build], cwd=folder, env=environ, check=True)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine")
    make_library(folder)
    make_package(folder)
    (folder / "which.py").write_text(WHICH)
    return folder


def run(machine: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PSP_")}
    done = subprocess.run(
        [sys.executable, "-m", "pscompy", *arguments],
        cwd=machine,
        env={**kept, "PYTHONPATH": str(machine), **environ},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def portals(machine: Path, **environ: str) -> Any:
    told = json.loads(run(machine, "info", "--json", **environ).stdout)
    (found,) = (it for it in told["transports"] if it["name"] == "portals")
    return found


def connection(machine: Path, **environ: str) -> str:
    """What two ranks on this machine use, but for shm, and why."""
    return run(machine, "run", "-n", "2", "which.py", PSP_SHM="0", PSP_IB="0", **environ).stdout


def test_every_function_that_the_driver_wants_is_there() -> None:
    text = (FOLDER / "psptl.c").read_text()
    wanted = text[text.index("#define PSPTL_FUNCTIONS") :].split("static")[0]
    named = {
        word for word in wanted.replace("(", " ").replace(")", " ").split() if word[:3] == "Ptl"
    }
    assert named == {"PtlInit", "PtlNIInit", *FUNCTIONS}


def test_where_there_is_a_library_it_is_used(machine: Path) -> None:
    there = {"LD_LIBRARY_PATH": str(machine)}
    assert portals(machine, **there)["available"]
    assert connection(machine, **there).startswith("portals\n")
    assert connection(machine, PSP_PORTALS="0", **there).startswith("tcp\n")


def test_where_there_is_none_nobody_gets_the_software_unless_he_asks(machine: Path) -> None:
    reason = "available, not enabled (PSP_PORTALS=1 enables it)"
    assert portals(machine)["reason"] == reason
    assert connection(machine).startswith("tcp\n")
    assert connection(machine, PSP_PORTALS="1").startswith("portals\n")


@pytest.mark.parametrize("asked", [{}, {"PSP_PORTALS": "1"}])
def test_a_library_without_an_interface_is_no_reason_for_the_software(
    machine: Path, asked: dict[str, str]
) -> None:
    broken = {"LD_LIBRARY_PATH": str(machine), "NO_PORTALS_NIC": "1"}
    told = connection(machine, **broken, **asked)
    assert told.startswith("tcp\n")
    assert "PSP_PORTALS_PROVIDER" in told
    software = connection(machine, PSP_PORTALS_PROVIDER="software", **broken)
    assert software.startswith("portals\n")


def test_who_asks_for_a_library_that_is_not_there_is_told(machine: Path) -> None:
    arguments = ("run", "-n", "2", "which.py")
    done = run(machine, *arguments, PSP_SHM="0", PSP_PORTALS_PROVIDER="system")
    assert done.stdout.startswith("tcp\n")
    asked = "portals is asked for by PSP_PORTALS_PROVIDER=system (environment)"
    assert f"{asked}, and cannot be used: libportals.so.4" in done.stderr
