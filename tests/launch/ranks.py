"""Ranks that say what happens to them, and what the tests of all launchers check of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from tests.jobs import TIMEOUT
from tests.waiting import stay


def own_rank() -> int:
    return int(os.environ["PMI_RANK"])


def say(*words: object) -> None:
    """Write a line by os.write: a signal handler may interrupt print, which cannot be entered
    again."""
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


def notes(name: str, leave: str = "") -> None:
    """Write the signal `name` when it arrives, and end. `leave` is "setpgrp" or "setsid" to leave
    the job's process group before that."""
    if leave:
        getattr(os, leave)()

    def note(number: int, _: object) -> None:
        say(own_rank(), signal.Signals(number).name)
        sys.exit()

    signal.signal(signal.Signals[name], note)
    say("ready")
    stay()


def await_ready(process: subprocess.Popen[str], ranks: int) -> None:
    """Read the "ready" of each rank."""
    assert process.stdout is not None
    for _ in range(ranks):
        assert process.stdout.readline() == "ready\n"


def lines_until(process: subprocess.Popen[str], enough: Callable[[list[str]], object]) -> list[str]:
    """Read lines of stderr until `enough` of them is true; returns them."""
    assert process.stderr is not None
    lines: list[str] = []
    guard = threading.Timer(TIMEOUT, process.kill)
    guard.start()
    while not enough(lines):
        line = process.stderr.readline()
        assert line, "".join(lines)
        lines.append(line.rstrip("\n"))
    guard.cancel()
    return lines


def check_signal(process: subprocess.Popen[str], ranks: int, name: str) -> None:
    """The signal `name`, sent to the launcher, reaches each rank, which runs `notes`."""
    await_ready(process, ranks)
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=100)
    assert sorted(out.splitlines()) == [f"{rank} {name}" for rank in range(ranks)]
    assert (process.returncode, err) == (0, "")
