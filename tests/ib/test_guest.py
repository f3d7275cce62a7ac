"""ib with sessions and whole programs, in guests: `suite_*.py` of this folder run inside one."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ib.booting import HERE, IN_A_GUEST, KERNEL, PROGRAMS, ROOT, boot, run_suites

pytestmark = IN_A_GUEST

ALONE = {"suite_gateway.py", "suite_removal.py"}
TOGETHER = {path.name for path in HERE.glob("suite_*.py")} - ALONE - {"suite_conformance.py"}


@pytest.mark.parametrize("suites", [*([it] for it in sorted(ALONE)), sorted(TOGETHER)], ids=str)
def test_suites(suites: list[str]) -> None:
    """Most suites share a guest, except the longest and those that change the guest."""
    assert run_suites(*suites) == 0


def test_demo(tmp_path: Path) -> None:
    """Four ranks that have only ib run the demo."""
    program = [sys.executable, "-m", "pscompy", "run", "-n", "4", "examples/heat/heat.py"]
    program += ["--size", "48", "--steps", "60", "--out", str(tmp_path)]
    only_ib = "PSP_SHM=0 PSP_TCP=0 PSP_DEBUG=3 PSP_DEBUG_CONTYPE=1"
    done = boot(f"{only_ib} {shlex.join(program)}")
    assert done.returncode == 0
    assert "matches the serial result" in done.stdout


def test_executor() -> None:
    """The examples with the executor, which send whole images."""
    only_ib = "PSP_SHM=0 PSP_TCP=0"
    run = shlex.join([sys.executable, "-m", "pscompy", "run", "-n", "3"])
    examples = ("montecarlo.py 100000", "images.py 6")
    lines = [f"{only_ib} {run} examples/parcels/{example} || exit" for example in examples]
    done = boot("\n".join(lines))
    assert done.returncode == 0
    assert "within four standard errors: True" in done.stdout
    assert "6 of 6 images have the right number of discs" in done.stdout


def why_no_two_hosts() -> str | None:
    """The reason why two connected guests cannot run; None if they can."""
    if os.geteuid() != 0:
        return "a bridge needs root"
    if b"uml-vector" not in Path(KERNEL).read_bytes():
        return "this guest's kernel has no device to the outside (UML_NET_VECTOR)"
    if not shutil.which("mpiexec", path=PROGRAMS):
        return "there is no mpiexec: pip install mpich"
    return None


def test_a_ring_over_two_hosts() -> None:
    if reason := why_no_two_hosts():
        pytest.skip(reason)
    command = [HERE / "guest" / "two-hosts", "4", sys.executable, "tests/ib/ring.py"]
    environment = {**os.environ, "PATH": PROGRAMS, "PSP_TCP": "0"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"rank {rank} on guest{1 + rank % 2}: to rank {(rank + 1) % 4} over ib" for rank in range(4)
    ]


# ---- reports of `pscompy info` -------------------------------------------------

PORT = "/sys/class/infiniband/rxe0/ports/1/state"
# Rows of: a command that changes the guest for good, variables, and the reason that `info` reports.
FLAWS = (
    ("", "PSP_IB_HCA=mlx5_0", "no device mlx5_0 (PSP_IB_HCA); the first is rxe0"),
    ("", "PSP_IB_HCA=mlx5_0,rxe0:3", "rxe0 has no port 3, the last is 1"),
    ("", "PSP_IB_PORT=2", "rxe0 has no port 2, the last is 1 (PSP_IB_PORT, PSP_IB_HCA)"),
    ("", "PSP_IB_GID_INDEX=77", "has no GID 77 (PSP_IB_GID_INDEX)"),
    ("", "prlimit --memlock=65536 setpriv --bounding-set=-all", "no memory can be locked"),
    (f"ip link set veth0 down; until grep -q DOWN {PORT}; do :; done", "", "port 1 is down"),
    ("rdma link delete rxe0", "", "no RDMA device"),
)


@pytest.fixture(scope="module")
def told() -> list[str]:
    """Run `info` in one guest: once unchanged, then after each flaw; returns the outputs."""
    info = shlex.join([sys.executable, "-m", "pscompy", "info"])
    lines = [info, *(f"{done}\necho '# next'\nenv {how} {info} --json" for done, how, _ in FLAWS)]
    return boot("\n".join(lines)).stdout.split("# next\n")


def test_info_tells_of_the_device(told: list[str]) -> None:
    lines = told[0].splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.startswith("  ib "))
    assert lines[at].endswith("available")
    assert "put, get" in lines[at + 1]
    limits = r"max_short \d+ B, max_bcopy \d+ B, max_put \d+ MiB, max_get \d+ MiB"
    assert re.fullmatch(limits, lines[at + 2].strip())
    device = r"ib: device rxe0/1, \d+ queue pairs, path MTU \d+ bytes, GID \d+"
    assert re.fullmatch(device, lines[at + 4].strip())


@pytest.mark.parametrize("flaw", range(len(FLAWS)), ids=[reason for *_, reason in FLAWS])
def test_unavailable_with_a_reason(told: list[str], flaw: int) -> None:
    transports = json.loads(told[1 + flaw])["transports"]
    (ib,) = (it for it in transports if it["name"] == "ib")
    assert not ib["available"]
    assert FLAWS[flaw][-1] in ib["reason"]
