"""ib on a real RDMA stack: Soft-RoCE, in a guest that a test boots within a second.

PSCOMPY_TEST_UML names the guest's kernel, which tests/ib/guest/build-kernel makes. Inside the
guest a test runs a file `suite_*.py` of this folder, or the contract's driver.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.contract.test_contract import ROOT, case_names, settings, sources

HERE = Path(__file__).parent
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-pthread"]
# AddressSanitizer needs more address space than the guest has, so memcheck replaces it.
SANITIZE = ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
MEMCHECK = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full"]
MEMCHECK += ["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]
KERNEL = os.environ.get("PSCOMPY_TEST_UML", "")
GUEST_DIED = 99  # exit code of `boot` if the guest died
PROGRAMS = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

# Settings with the smallest queues and buffers.
SQUEEZED = ["BUFFER_SIZE=2048:2k", "RECVQ_SIZE=4:4", "SENDQ_SIZE=16:16", "SRQ_SIZE=16:16"]
SQUEEZED += ["SEND_BUFFERS=4:4", "COMPQ_SIZE=16:16", "PENDING_TOKENS=3:3"]
TIGHT_CASES = (
    "exchange_bcopy",
    "back_pressure_odd",
    "kinds_keep_order",
    "many_endpoints",
    "close_drains",
    "put_lands",
    "get_fetches",
    "deregistered_is_refused",
    "wakes_for_messages",
    "wakes_for_room",
)
MEMCHECK_CASES = (
    "wrong_token_fails_both",
    "damaged_address_is_refused",
    "unused_endpoint_closes",
    "close_inside_upcall",
    "close_drains",
    "exchange_bcopy",
    "back_pressure_odd",
    "put_lands",
    "get_fetches",
    "deregistered_is_refused",
    "revoked_is_refused",
)
QUICK = ["KEEPALIVE=1000000000:1", "CONNECT_TIMEOUT=3000000000:3", "TIMEOUT=10:10"]


def missing() -> str | None:
    """The reason why no guest can run on this machine; None if one can."""
    if not KERNEL:
        return "PSCOMPY_TEST_UML names no kernel (tests/ib/guest/build-kernel makes one)"
    if not os.access(KERNEL, os.X_OK):
        return f"PSCOMPY_TEST_UML={KERNEL} cannot be run"
    tools = {"ip": "iproute2", "rdma": "iproute2", "busybox": "busybox-static"}
    for tool, package in tools.items():
        if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin:/bin"):
            return f"the guest needs {package}"
    if not Path("/usr/include/infiniband/verbs.h").exists():
        return "the guest needs libibverbs-dev"
    return None


pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=str(missing())),
    pytest.mark.timeout(1000),
]


def boot(command: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in a guest of its own, in the project's folder.

    A guest may die, or its kernel hang, for reasons that have nothing to do with the command,
    which has time limits of its own. This is printed, and a second guest is tried.
    """
    done = booted(command)
    if done.returncode == GUEST_DIED:
        print("the guest died; once more")
        done = booted(command)
    return done


def booted(command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [HERE / "guest" / "boot", command],
        cwd=ROOT,
        env={**os.environ, "GUEST_SECONDS": "450"},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    print(done.stdout[-20000:], done.stderr[-5000:])
    return done


# ---- the contract --------------------------------------------------------------


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("ib") / "driver_ib", SANITIZE)


@pytest.fixture(scope="module")
def plain_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("ib") / "plain_ib", [])


def compile_driver(path: Path, more: Sequence[str]) -> Path:
    command = ["gcc", *FLAGS, *more, f"-I{ROOT}", "-DTRANSPORT=ib_transport", "-o", str(path)]
    subprocess.run([*command, *map(str, sources("ib")), "-libverbs"], check=True)
    return path


def check_cases(
    driver: Path, cases: Sequence[str], given: Sequence[str], under: Sequence[str] = ()
) -> None:
    """Run all cases in one guest; each prints its exit code, which is 77 if it cannot run."""
    arguments = shlex.join([*settings("ib"), *given])
    start = shlex.join([*under, str(driver)])
    lines = [
        f"{start} {case} {arguments} >{driver}.out 2>&1; code=$?; echo '#' {case} $code;"
        f" [ $code = 77 ] && grep skipped: {driver}.out; [ $code = 0 ] || tail -n 30 {driver}.out"
        for case in cases
    ]
    done = boot("\n".join(lines))
    codes = dict(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("# "))
    assert list(codes) == list(cases), "not all cases were run"
    assert {case: code for case, code in codes.items() if code not in ("0", "77")} == {}


def test_contract(driver: Path) -> None:
    check_cases(driver, list(case_names("ib")), [*QUICK, "EAGER=0:rdma"])


@pytest.mark.parametrize("eager", ["rdma", "srq"])
def test_contract_when_tight(driver: Path, eager: str) -> None:
    check_cases(driver, TIGHT_CASES, [*SQUEEZED, f"EAGER=0:{eager}"])


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
def test_memcheck(plain_driver: Path) -> None:
    check_cases(plain_driver, MEMCHECK_CASES, [*QUICK, "EAGER=0:rdma"], MEMCHECK)


# ---- with sessions -------------------------------------------------------------


ALONE = {"suite_conformance.py", "suite_gateway.py", "suite_removal.py"}
TOGETHER = {path.name for path in HERE.glob("suite_*.py")} - ALONE


@pytest.mark.parametrize("suites", [*([it] for it in sorted(ALONE)), sorted(TOGETHER)], ids=str)
def test_suites(suites: list[str]) -> None:
    """Most suites share a guest, except the longest and those that change the guest."""
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    pytest_ += [f"tests/ib/{suite}" for suite in suites]
    assert boot(shlex.join(pytest_)).returncode == 0


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
