"""The contract's cases over ib, in a guest."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.compiler import Compiler
from tests.contract.test_contract import case_names, settings, sources
from tests.ib.booting import IN_A_GUEST, boot

pytestmark = IN_A_GUEST
# AddressSanitizer needs more address space than the guest has, so memcheck replaces it.
SANITIZE = ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
MEMCHECK = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full"]
MEMCHECK += ["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]

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


@pytest.fixture(scope="module")
def driver(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(compiler, tmp_path_factory.mktemp("ib") / "driver_ib", SANITIZE)


@pytest.fixture(scope="module")
def plain_driver(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(compiler, tmp_path_factory.mktemp("ib") / "plain_ib", [])


def compile_driver(compiler: Compiler, path: Path, flags: Sequence[str]) -> Path:
    return compiler(path, sources("ib"), flags, ["-DTRANSPORT=ib_transport"], ["-libverbs"])


def check_cases(
    driver: Path, cases: Sequence[str], given: Sequence[str], under: Sequence[str] = ()
) -> dict[str, str]:
    """Run all cases in one guest; returns their exit codes, which are 77 if they cannot run."""
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
    return codes


def test_contract(driver: Path) -> None:
    check_cases(driver, case_names("ib"), [*QUICK, "EAGER=0:rdma"])


@pytest.mark.parametrize("eager", ["rdma", "srq"])
def test_contract_when_tight(driver: Path, eager: str) -> None:
    check_cases(driver, TIGHT_CASES, [*SQUEEZED, f"EAGER=0:{eager}"])


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
def test_memcheck(plain_driver: Path) -> None:
    """In one process, because valgrind takes seconds to start in a guest."""
    together = ",".join(MEMCHECK_CASES)
    codes = check_cases(plain_driver, [together], [*QUICK, "EAGER=0:rdma"], MEMCHECK)
    assert codes == {together: "0"}
