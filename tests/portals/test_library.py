"""portals over a system's Portals 4 library, which is used if there is one.

The test builds such a library from the software NI, with a <portals4.h> that has different types
and constants, and the loader finds it like an installed library. The plug-in and its own
software NI are built again with that header.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pscompy
from pscompy.testing.process import BOUND
from tests.program import program

ROOT = Path(pscompy.get_include())
FOLDER = ROOT / "pscompy" / "plugins" / "portals"
NI = ROOT / "softni/pscompy_softni"
FUNCTIONS = re.findall(
    r"X\((Ptl\w+)\)",
    (FOLDER / "psptl/provider.h").read_text().split("#define PSPTL_EXTENSIONS")[0],
)

# Headers differ in handles, constants and the order of members. These replacements turn the
# software NI's header into a different one.
OTHER_HEADER = {
    "typedef uint32_t ptl_handle_any_t;": "typedef void *ptl_handle_any_t;",
    "((ptl_handle_any_t)0xffffffff)": "((ptl_handle_any_t)0)",
    "((ptl_handle_eq_t)0xfffffffe)": "((ptl_handle_eq_t)0)",
    "((ptl_handle_ct_t)0xfffffffd)": "((ptl_handle_ct_t)0)",
    "((ptl_nid_t)0xffffffff)": "((ptl_nid_t)0)",
    "((ptl_pid_t)0xffffffff)": "((ptl_pid_t)0)",
    "((ptl_interface_t)0xffffffff)": "((ptl_interface_t)0)",
    "PTL_ACK_REQ, PTL_CT_ACK_REQ, PTL_OC_ACK_REQ": "PTL_CT_ACK_REQ, PTL_OC_ACK_REQ, PTL_ACK_REQ",
    "PTL_NI_UNDELIVERABLE,": "PTL_NI_UNDELIVERABLE = 5,",
    "PTL_EVENT_GET = 0,": "PTL_EVENT_GET = 4,",
    "typedef unsigned char ptl_ni_fail_t;": "typedef unsigned int ptl_ni_fail_t;",
    "    void *start;\n    void *user_ptr;\n": "    void *user_ptr;\n",
    "    ptl_ni_fail_t ni_fail_type;\n": "    ptl_ni_fail_t ni_fail_type;\n    void *start;\n",
    "#define PTL_ME_OP_PUT (1u << 1)": "#define PTL_ME_OP_PUT (1u << 3)",
    "#define PTL_ME_USE_ONCE (1u << 3)": "#define PTL_ME_USE_ONCE (1u << 1)",
    "    PTL_OK = 0,\n    PTL_ARG_INVALID,": "    PTL_OK = 0,\n    PTL_ARG_INVALID = 32,",
}

COMMENT = re.compile(r"\n? */\*.*?\*/", re.DOTALL)


def tell_the_transport() -> None:
    import pscompy

    with pscompy.World() as world:
        if world.rank == 0:
            world.send(b"connect", dest=1)
            world.recv()
            print(world[1].transport)
            print(world[1].explain())
        else:
            world.send(world.recv(), dest=0)


TWO_RANKS = ("run", "-n", "2", "-c", program(tell_the_transport))


def make_header(folder: Path) -> None:
    text = COMMENT.sub("", (NI / "portals4.h").read_text())
    for ours, theirs in OTHER_HEADER.items():
        assert ours in text, ours
        text = text.replace(ours, theirs)
    folder.mkdir()
    (folder / "portals4.h").write_text(text)


def make_library(folder: Path, header: Path) -> None:
    """Build a library that exports only the functions of the specification, not the NI's
    extensions."""
    sources = [path for path in NI.glob("*.c") if path.name != "library.c"]
    sources.append(Path(__file__).parent / "library.c")
    exported = folder / "exported"
    exported.write_text(f"{{ global: {' '.join(f'{name};' for name in FUNCTIONS)} local: *; }};")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-pthread", f"-I{ROOT}", f"-I{header}"]
    out = ["-shared", f"-Wl,--version-script={exported}", "-o", folder / "libportals.so.4"]
    subprocess.run(["gcc", *flags, *out, *sources], check=True)


def make_package(folder: Path, header: Path) -> None:
    """Copy pscompy and build its plug-in as if a library's header had been found."""
    ignored = shutil.ignore_patterns("__pycache__", "_native.c", "*.o")
    for package in ("pscompy", "softni"):
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    plugin = folder / "pscompy/plugins/portals"
    build = "import sys; sys.path.insert(0, '')\nfrom runpy import run_path\n"
    build += "run_path('pscompy/plugins/portals/build.py')['ffibuilder'].compile()"
    for old in plugin.rglob("*.so"):
        old.unlink()
    environ = {**os.environ, "CFLAGS": f"-I{header}"}
    subprocess.run([sys.executable, "-c", build], cwd=folder, env=environ, check=True)
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-fvisibility=hidden", "-pthread"]
    out = ["-shared", "-Wl,-Bsymbolic", "-o", folder / "softni/pscompy_softni/libsoftni.so"]
    sources = sorted(NI.glob("*.c"))
    subprocess.run(["gcc", *flags, f"-I{ROOT}", f"-I{header}", *out, *sources], check=True)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine")
    make_header(folder / "include")
    make_library(folder, folder / "include")
    make_package(folder, folder / "include")
    return folder


def run(machine: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PSP_")}
    done = subprocess.run(
        [sys.executable, "-m", "pscompy", *arguments],
        cwd=machine,
        env={**kept, "PYTHONPATH": f"{machine}:{machine}/softni", **environ},
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
    """The transport that two ranks on this machine use without shm, and the reason."""
    return run(machine, *TWO_RANKS, PSP_SHM="0", PSP_IB="0", **environ).stdout


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
    done = run(machine, *TWO_RANKS, PSP_SHM="0", PSP_PORTALS_PROVIDER="system")
    assert done.stdout.startswith("tcp\n")
    asked = "portals is asked for by PSP_PORTALS_PROVIDER=system (environment)"
    assert f"{asked}, and cannot be used: libportals.so.4" in done.stderr
