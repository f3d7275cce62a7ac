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
from tests.ib.devices import without_pictures

pytestmark = IN_A_GUEST


def test_suites_that_change_the_guest() -> None:
    assert run_suites("suite_gateway.py", "suite_removal.py") == 0  # in this order


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


# ---- programs of users, and reports of `pscompy info` -------------------------------

ONLY_IB = "PSP_SHM=0 PSP_TCP=0"
RUN = shlex.join([sys.executable, "-m", "pscompy", "run", "-n"])
EXAMPLES = {
    "montecarlo.py 100000": "within four standard errors: True",
    "images.py 6": "6 of 6 images have the right number of discs",
}
INFO = shlex.join([sys.executable, "-m", "pscompy", "info"])
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
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """The outputs and exit codes of all commands, in one guest: the demo, the examples, and `info`,
    once in the unchanged guest and then after each flaw."""
    folder = tmp_path_factory.mktemp("demo")
    heat = f"examples/heat/heat.py --size 48 --steps 60 --out {folder}"
    commands = {"demo": f"PYTHONPATH={without_pictures(folder)} {ONLY_IB} {RUN} 4 {heat}"}
    commands |= {it: f"{ONLY_IB} {RUN} 3 examples/parcels/{it}" for it in EXAMPLES}
    commands |= {"info": INFO}
    commands |= {flaw: f"{done}\nenv {how} {INFO} --json" for done, how, flaw in FLAWS}
    lines = [f"{it}\necho '# ended with' $?" for it in commands.values()]
    parts = re.split(r"^# ended with (\d+)\n", boot("\n".join(lines)).stdout, flags=re.M)
    return dict(zip(commands, zip(parts[::2], parts[1::2], strict=False), strict=True))


def test_demo(told: dict[str, tuple[str, str]]) -> None:
    """Four ranks that have only ib run the demo."""
    output, code = told["demo"]
    assert "matches the serial result" in output
    assert code == "0"


@pytest.mark.parametrize("example", EXAMPLES)
def test_executor(told: dict[str, tuple[str, str]], example: str) -> None:
    """The examples with the executor, which send whole images."""
    output, code = told[example]
    assert EXAMPLES[example] in output
    assert code == "0"


def test_info_tells_of_the_device(told: dict[str, tuple[str, str]]) -> None:
    lines = told["info"][0].splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.startswith("  ib "))
    assert lines[at].endswith("available")
    assert "put, get" in lines[at + 1]
    limits = r"max_short \d+ B, max_bcopy \d+ B, max_put \d+ MiB, max_get \d+ MiB"
    assert re.fullmatch(limits, lines[at + 2].strip())
    device = r"ib: device rxe0/1, \d+ queue pairs, path MTU \d+ bytes, GID \d+"
    domain = ", without a thread domain: Operation not supported"
    assert re.fullmatch(device + domain, " ".join(it.strip() for it in lines[at + 4 : at + 6]))


@pytest.mark.parametrize("reason", [reason for *_, reason in FLAWS])
def test_unavailable_with_a_reason(told: dict[str, tuple[str, str]], reason: str) -> None:
    transports = json.loads(told[reason][0])["transports"]
    (ib,) = (it for it in transports if it["name"] == "ib")
    assert not ib["available"]
    assert reason in ib["reason"]
