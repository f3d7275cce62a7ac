"""How tests know that something waits, and that it costs nothing, on a machine of any speed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

# A line of a program that a test starts: it stays until it is ended. In naps: Python notes a signal
# that comes just before a sleep begins, and acts when that is over.
STAYS = "any(time.sleep(0.05) for _ in range(6000))"


def waits_until(condition: str) -> str:
    """A line of a program that a test starts: another process brings about what it waits for."""
    return f"while not ({condition}): time.sleep(0.01)\n"


def expect_soon(condition: Callable[[], object], what: str = "it", seconds: float = 60.0) -> None:
    """For what can only be observed: poll until it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} does not happen"
        time.sleep(0.005)


def asleep(thread: int, pid: int | None = None, seconds: float = 0.02) -> bool:
    """Whether this thread has been waiting in the kernel for some time: longer than it would wait
    for the interpreter, which it asks for again every 5 ms."""
    status = Path(f"/proc/{pid or os.getpid()}/task/{thread}/status")
    before = status.read_text()
    if "State:\tS" not in before:
        return False
    time.sleep(seconds)
    switches = [line for line in before.splitlines() if "ctxt_switches" in line]
    after = status.read_text()
    return "State:\tS" in after and all(line in after for line in switches)


def idles(used: Callable[[], float], share: float = 0.02) -> bool:
    """Whether what uses so much of a processor at one time uses next to nothing at another: what
    polls never does, and what else happens in the process or on the machine comes and goes."""
    return any(used() < share for _ in range(10))


def own_use(seconds: float = 1.0) -> float:
    """The share of a processor that all threads of this process use for some time."""
    before, begun = time.process_time(), time.monotonic()
    time.sleep(seconds)
    return (time.process_time() - before) / (time.monotonic() - begun)
