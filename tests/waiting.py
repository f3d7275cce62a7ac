"""Helpers that detect waiting threads, and measure their CPU time, on a machine of any speed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path


def stay() -> None:
    """Sleep until this process is ended. Sleeps in short steps, because Python handles a signal
    that arrives just before a sleep only after that sleep."""
    for _ in range(6000):
        time.sleep(0.05)


def expect_soon(condition: Callable[[], object], what: str = "it", seconds: float = 60.0) -> None:
    """Poll until `condition` is true; for conditions that notify nobody."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} does not happen"
        time.sleep(0.005)


def state_of(pid: int) -> str:
    """The state of a process, as a letter of proc(5): "T" is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def asleep(thread: int, pid: int | None = None, seconds: float = 0.02) -> bool:
    """True if this thread has been blocked in the kernel for longer than it would wait for the
    GIL, which it requests again every 5 ms."""
    status = Path(f"/proc/{pid or os.getpid()}/task/{thread}/status")
    before = status.read_text()
    if "State:\tS" not in before:
        return False
    time.sleep(seconds)
    switches = [line for line in before.splitlines() if "ctxt_switches" in line]
    after = status.read_text()
    return "State:\tS" in after and all(line in after for line in switches)


def once_blocked(act: Callable[[], object]) -> None:
    """Call `act` in another thread as soon as the calling thread is blocked in the kernel."""
    caller = threading.get_native_id()

    def wait() -> None:
        expect_soon(lambda: asleep(caller))
        act()

    threading.Thread(target=wait).start()


def idles(used: Callable[[], float], share: float = 0.02) -> bool:
    """True if at least one of ten measurements is below `share`. A thread that polls never is,
    while other activity of the process or the machine comes and goes."""
    return any(used() < share for _ in range(10))


def own_use(seconds: float = 1.0) -> float:
    """The share of a CPU that all threads of this process use within `seconds`."""
    before, begun = time.process_time(), time.monotonic()
    time.sleep(seconds)
    return (time.process_time() - before) / (time.monotonic() - begun)
