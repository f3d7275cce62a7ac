"""Runs the contract's cases, in C, with every transport (driver.c says how a transport joins)."""

from __future__ import annotations

import importlib
import re
import runpy
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from pscompy.config.config import Config
from tests.compiler import ADDRESS, THREAD, Compiler, cases

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLUGINS = ROOT / "pscompy" / "plugins"
# Transports that need no device; ib has its own tests, in a guest (tests/ib).
NAMES = sorted(
    path.parent.name
    for path in PLUGINS.glob("*/transport.c")
    if f"uintptr_t {path.parent.name}_transport(void)" in path.read_text()
    and "HEADERS" not in (path.parent / "build.py").read_text()
)
SKIPPED = 77
HEADER = (ROOT / "pscompy/transport/transport.h").read_text()
CAPABILITIES = set(re.findall(r"^#define PSC_CAP_(\w+)", HEADER, re.M))

# Settings that make resources scarce, and the cases that they affect.
SQUEEZED = {
    "loop": ["BUFFER_SIZE=1024:1k", "SENDQ_SIZE=2:2"],
    "portals": ["BUFFER_SIZE=2048:2k", "SENDQ_SIZE=2:2", "RECVQ_SIZE=4:4", "EQ_SIZE=64:64"],
    "tcp": ["BUFFER_SIZE=1024:1k", "SO_SNDBUF=2048:2k", "SO_RCVBUF=2048:2k"],
}
# Settings that make the fabric faulty; they affect the same cases.
TROUBLED = {
    "portals": [
        *(f"FAULT_{what}=20000:2%" for what in ("FAIL_ACKS", "DISABLE_TABLES", "DROP")),
        "OVERFLOW_SIZE=2:2",
        "FAULT_UNLINK_USED=1:1",
    ],
}
# Settings that make cases faster.
QUICK = {"portals": ["KEEPALIVE=200000000:200ms"]}

TIGHT_CASES = (
    "exchange_bcopy",
    "exchange_zcopy",
    "back_pressure_odd",
    "kinds_keep_order",
    "landing_scattered",
    "landing_cut_short",
    "landing_taken_back",
    "held_descriptors",
    "close_drains",
    "wakes_for_messages",
    "wakes_for_room",
    "wakes_for_completion",
)

# Left out: cases that truncate messages, because a message truncated for the wrong receive is lost
# (docs/portals.md), and cases whose second thread ends with a send, because nobody would repeat
# that send if it was refused.
TROUBLED_CASES = (
    *(case for case in TIGHT_CASES if not case.startswith("wakes_")),
    "expected_messages_land",
    "unexpected_messages_come_up",
    "bits_decide",
    "one_order_with_active_messages",
    "early_or_late_each_finds_its_place",
)


def library(name: str) -> Path | None:
    """The shared library that the transport opens, if it has one."""
    found: Path | None = runpy.run_path(str(PLUGINS / name / "build.py")).get("LIBRARY")
    return found and ROOT / found


def transport_sources(name: str) -> list[Path]:
    found = (PLUGINS / name).rglob("*.c")
    return sorted(path for path in found if path.name != "_native.c")


def compile_library(compiler: Compiler, name: str, driver: Path, flags: Sequence[str]) -> None:
    """Compile the transport's library beside the driver, where it is looked for."""
    if (built := library(name)) is None:
        return
    made = driver.parent / built.name
    flags = [*flags, "-fPIC", "-fvisibility=hidden"]
    compiler(made, sorted(built.parent.glob("*.c")), flags, link=["-shared"])


def sources(name: str) -> list[Path]:
    """The harness, the transport's own cases, and the transport."""
    own = HERE.glob(f"{name}_*cases.c")
    common = [path for path in HERE.glob("*.c") if not path.name.endswith("_cases.c")]
    return sorted([*common, *transport_sources(name), *own])


def compile_driver(compiler: Compiler, folder: Path, name: str, flags: Sequence[str]) -> Path:
    driver = folder / name / f"driver_{name}"
    compile_library(compiler, name, driver, flags)
    return compiler(driver, sources(name), flags, [f"-DTRANSPORT={name}_transport"])


class Drivers:
    """The compiled driver of each transport, compiled at first use."""

    def __init__(self, compiler: Compiler, folder: Path) -> None:
        self._compiler = compiler
        self._folder = folder
        self._made: dict[str, Path] = {}

    def __getitem__(self, name: str) -> Path:
        if name not in self._made:
            self._made[name] = compile_driver(self._compiler, self._folder, name, ADDRESS)
        return self._made[name]


@pytest.fixture(scope="session")
def drivers(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Drivers:
    return Drivers(compiler, tmp_path_factory.mktemp("contract"))


def settings(name: str) -> list[str]:
    """The declared defaults and the settings for speed, as arguments of the driver."""
    variables = importlib.import_module(f"pscompy.plugins.{name}.config").VARIABLES
    config = Config.load({name.upper(): variables}, environ={}, known=None)
    declared = [f"{s.name}={s.number}:{s.text}" for s in config.settings(name.upper())]
    return declared + QUICK.get(name, [])


def case_names(name: str) -> list[str]:
    """The names of the cases, read from the sources, because nothing is built yet."""
    return cases(sources(name))


def check_case(driver: Path, case: str, *arguments: str) -> None:
    done = subprocess.run(
        [driver, case, *arguments], capture_output=True, text=True, timeout=250, check=False
    )
    print(done.stdout)
    if done.returncode == SKIPPED:
        reason = done.stdout.strip().splitlines()[-1].removeprefix("skipped: ")
        lacking = reason.partition(" lacks ")[2].split()
        assert not lacking or set(lacking) <= CAPABILITIES, reason
        pytest.skip(reason)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in NAMES for case in case_names(name)]
)
def test_contract(drivers: Drivers, name: str, case: str) -> None:
    check_case(drivers[name], case, *settings(name))


@pytest.mark.parametrize("case", TIGHT_CASES)
@pytest.mark.parametrize("name", sorted(SQUEEZED))
def test_contract_when_tight(drivers: Drivers, name: str, case: str) -> None:
    check_case(drivers[name], case, *settings(name), *SQUEEZED[name])


@pytest.mark.parametrize("case", TROUBLED_CASES)
@pytest.mark.parametrize("name", sorted(TROUBLED))
def test_contract_in_trouble(drivers: Drivers, name: str, case: str) -> None:
    check_case(drivers[name], case, *settings(name), *TROUBLED[name])


def test_rings_between_threads_under_tsan(compiler: Compiler, tmp_path: Path) -> None:
    """Both sides use a ring whose pages are given back meanwhile."""
    driver = compile_driver(compiler, tmp_path, "shm", THREAD)
    check_case(driver, "rings_between_threads", *settings("shm"))


@pytest.mark.parametrize("name", NAMES)
def test_every_case_is_run(drivers: Drivers, name: str) -> None:
    listed = subprocess.run(
        [drivers[name], "list"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert sorted(listed) == sorted(case_names(name))
