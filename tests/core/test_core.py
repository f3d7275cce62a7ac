"""The core in C, over every transport built here: two workers in one process, under
AddressSanitizer and UBSan, and the cases with threads also under ThreadSanitizer.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.compiler import ADDRESS, THREAD, Compiler, cases
from tests.contract.test_contract import (
    NAMES,
    ROOT,
    compile_library,
    settings,
    transport_sources,
)

HERE = Path(__file__).parent
THREADED = ["threads", "wake", "lending_threads", "driven", "driven_and_waited", "waits"]
THREADED += ["waits_beside_a_passer_by", "completions_beside_the_poller"]
THREADED += ["only_its_thread_is_woken", "two_wait_for_one", "any_of_several", "role_is_passed_on"]
THREADED += ["a_completion_of_others_ends_no_wait_of_its_own"]
THREADED += ["who_takes_completions_is_woken_by_who_does_not"]
THREADED += ["a_follower_watches_first", "tuple_threads", "a_worker_for_each_thread"]
THREADED += ["sleeping_waits_are_marked"]
THREADED += ["collectives_in_threads"]
CASES = cases(sorted(HERE.glob("*.c")))
KEPT = ("views_outlive_all", "views_are_kept")
LARGE_PAGES = [*ADDRESS, "-DPSC_PAGE_SIZE=65536"]
SMALL = {"shm": ["RECVQ_SIZE=2:2"]}
# Cases in which nothing may wake a sleeper, and the transports with a clock that does.
SILENT = ["a_send_that_leaves_wakes_nobody", "sleepers_are_apart", "news_before_arming"]
NO_CLOCK = {"portals": ["KEEPALIVE=0:0"]}


def sources(name: str) -> list[Path]:
    found = [*sorted(HERE.glob("*.c")), *sorted((ROOT / "pscompy/core").rglob("*.c"))]
    for room in ("proto", "coll"):
        found += sorted((ROOT / "pscompy" / room).glob("*.c"))
    found += transport_sources(name)
    return [path for path in found if path.name != "_core.c"]


def compile_driver(compiler: Compiler, folder: Path, name: str, flags: Sequence[str]) -> Path:
    driver = folder / name / f"core_{name}"
    compile_library(compiler, name, driver, flags)
    # A transport that reaches only its own process needs both ends in one worker.
    one_worker = ["-DONE_WORKER"] if name == "loop" else []
    macros = [f"-DTRANSPORT={name}_transport", *one_worker]
    return compiler(driver, sources(name), flags, macros)


@pytest.fixture(scope="module")
def driver_of(
    compiler: Compiler, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """The driver program for a transport, compiled once."""
    folder = tmp_path_factory.mktemp("core")
    return cache(lambda name: compile_driver(compiler, folder, name, ADDRESS))


def check_case(driver: Path, case: str, name: str, *more: str) -> None:
    command = [str(driver), case, *settings(name), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NAMES)
def test_core(name: str, case: str, driver_of: Callable[[str], Path]) -> None:
    check_case(driver_of(name), case, name, *(NO_CLOCK.get(name, []) if case in SILENT else []))


@pytest.mark.parametrize("case", [case for case in CASES if case != "threads"])
@pytest.mark.parametrize("name", sorted(SMALL))
def test_core_with_the_smallest_ring(
    name: str, case: str, driver_of: Callable[[str], Path]
) -> None:
    check_case(driver_of(name), case, name, *SMALL[name])


def test_a_later_setting_replaces_an_earlier_one(driver_of: Callable[[str], Path]) -> None:
    with pytest.raises(AssertionError):
        check_case(driver_of("shm"), "news_before_arming", "shm", "RECVQ_SIZE=0:0")
    check_case(driver_of("shm"), "news_before_arming", "shm", "RECVQ_SIZE=0:0", "RECVQ_SIZE=8:8")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["shm", "tcp"])
def test_core_with_receives_that_the_peer_sees(
    name: str, case: str, driver_of: Callable[[str], Path]
) -> None:
    check_case(driver_of(name), case, name, "TUPLE_MIN=1000:1000", "TUPLE_AM=1:1")


def test_pages_of_64_kib(compiler: Compiler, tmp_path: Path) -> None:
    """Memory is shared, mapped and kept in whole pages, whatever their size is."""
    driver = compile_driver(compiler, tmp_path, "shm", LARGE_PAGES)
    for case in ("sizes_auto", "blocks", "lending", "lent_and_received", *KEPT, "hostile_keys"):
        check_case(driver, case, "shm")


@pytest.mark.parametrize("name", NAMES)
def test_threads_are_clean(compiler: Compiler, name: str, tmp_path: Path) -> None:
    driver = compile_driver(compiler, tmp_path, name, THREAD)
    for case in THREADED:
        check_case(driver, case, name)


# ---- the orders of shm's memory --------------------------------------------------

PLUGIN = "pscompy/plugins/shm"
WRAPPED = ("shm_ring_map", "shm_ring_map_own", "shm_ring_unmap")
WRAPPED += ("process_vm_readv", "process_vm_writev")
# An order of memory of each kind: a file, and texts of it in which the last order is weakened.
ORDERS = {
    "report of copied bytes": ("copy", ["SHM_COPY_FAILED,\n                          {release}"]),
    "bytes of the other side": ("copy", [f"copied[other],\n{' ' * 32}{{acquire}}"]),
    "advertising": (
        "adverts",
        [
            "SHM_ENTRY_ADVERTISED),\n                          {release}",
            "&table->last, adverts->generation,\n                          {release}",
            "&table->seen, seen, {release}",
        ],
    ),
}


def compile_ordered(compiler: Compiler, folder: Path, weakened: Path | None = None) -> Path:
    """The driver for shm with ThreadSanitizer, which sees both ends' accesses at one address."""
    replaced = [it for it in sources("shm") if not weakened or it.name != weakened.name]
    more = [HERE / "shm/one_mapping.c", *([weakened] if weakened else [])]
    link = [f"-Wl,--wrap={it}" for it in WRAPPED]
    return compiler(
        folder / "core_shm", [*replaced, *more], THREAD, ["-DTRANSPORT=shm_transport"], link
    )


def check_orders(driver: Path) -> None:
    """In the first case one side copies all; in the second both copy at once, so that each may see
    the other at any moment."""
    for case in ("tuple_turns", "tuple_threads"):
        check_case(driver, case, "shm")


def test_orders_of_shared_memory(compiler: Compiler, tmp_path: Path) -> None:
    check_orders(compile_ordered(compiler, tmp_path))


@pytest.mark.parametrize("order", ORDERS)
def test_a_weak_order_is_found(
    order: str, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TSAN_OPTIONS", "halt_on_error=1")
    stem, places = ORDERS[order]
    text = (ROOT / PLUGIN / f"{stem}.c").read_text()
    for place in places:
        whole = place.format(acquire="memory_order_acquire", release="memory_order_release")
        assert whole in text
        weak = place.format(acquire="memory_order_relaxed", release="memory_order_relaxed")
        text = text.replace(whole, weak)
    weakened = tmp_path / f"{stem}.c"
    weakened.write_text(text.replace('#include "memory.h"', f'#include "{PLUGIN}/memory.h"'))
    driver = compile_ordered(compiler, tmp_path, weakened)
    until = time.monotonic() + 200
    with pytest.raises(AssertionError, match="ThreadSanitizer: data race"):
        while time.monotonic() < until:  # the moment that shows it is one of many
            check_orders(driver)
