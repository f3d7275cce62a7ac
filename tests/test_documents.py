"""The documents are complete, each variable is read, and no path of a particular machine occurs."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import pscompy
from pscompy.config.variables import VARIABLES

ROOT = Path(__file__).parents[1]
PLUGINS = sorted(path.parent.name for path in (ROOT / "pscompy/plugins").glob("*/build.py"))

pytestmark = pytest.mark.skipif(
    Path(pscompy.get_include()) != ROOT or not (ROOT / "ARCHITECTURE.md").exists(),
    reason="pscompy is installed without its source folder",
)


# ---- the documents are complete ------------------------------------------------


def calls_of_the_contract() -> list[str]:
    header = (ROOT / "pscompy/transport/transport.h").read_text()
    struct = re.search(r"^struct psc_transport_ops \{(.*?)^\};", header, re.M | re.S)
    assert struct
    code = re.sub(r"/\*.*?\*/", "", struct[1], flags=re.S)
    return re.findall(r"\(\*(\w+)\)\(", code)


def test_architecture_names_every_call_of_the_contract() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    named = set(re.findall(r"\w+", " ".join(rows)))
    calls = calls_of_the_contract()
    assert len(calls) > 25
    assert [call for call in calls if call not in named] == []


# ---- a variable that nothing reads must go --------------------------------------


def texts(*patterns: str) -> str:
    paths = {path for pattern in patterns for path in ROOT.glob(pattern)}
    return "\n".join(path.read_text() for path in sorted(paths))


def test_every_variable_of_the_core_is_read() -> None:
    code = texts(
        "pscompy/*.py",
        "pscompy/config/[!v]*.py",
        *(
            f"pscompy/{it}/**/*.py"
            for it in ("api", "control", "discovery", "launch", "parcel", "world")
        ),
    )
    assert [var.name for var in VARIABLES if f'"{var.name}"' not in code] == []


@pytest.mark.parametrize("name", PLUGINS)
def test_every_variable_of_a_transport_is_read(name: str) -> None:
    module = importlib.import_module(f"pscompy.plugins.{name}.config")
    code = texts(f"pscompy/plugins/{name}/*.c")
    unread = [var.name for var in module.VARIABLES if f'"{var.name}"' not in code]
    assert unread in ([], ["RENDEZVOUS"])  # the control plane reads RENDEZVOUS for all transports


# ---- no paths of a particular machine ------------------------------------------

HOMES = re.compile(r"""(?<![\w.$}~/:*"-])/(home|root|Users|opt|mnt|srv)/[\w.-]""")


def tracked_texts() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in path.read_bytes():
            yield path


@pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="not a git checkout"
)
def test_no_absolute_paths() -> None:
    leaks = [
        f"{path.relative_to(ROOT)}:{number}: {text}"
        for path in tracked_texts()
        for number, text in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if f"{ROOT}/" in text or HOMES.search(text)
    ]
    assert not leaks, "\n".join(leaks)


def test_an_absolute_path_is_seen() -> None:
    assert HOMES.search("cd /" + "home/somebody/pscompy")
    assert not HOMES.search("https://example.org/home/page, $HOME/.config, ~/opt/x")
