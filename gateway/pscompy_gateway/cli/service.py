"""Starting a gateway in the background, and stopping it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pscompy import PscomError

STOP_SECONDS = 20.0


def start(arguments: Sequence[str], pid_file: Path, log: Path | None) -> str:
    """Start a gateway with these arguments in the background, and write its pid to `pid_file`.

    Returns its first line of output once it serves. Raises `PscomError` if it does not start.
    """
    if (pid := running(pid_file)) is not None:
        raise PscomError(f"{pid_file}: process {pid} is running")
    with Path(log or os.devnull).open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "pscompy_gateway", "run", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors if log else subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    if "serves" not in line:
        reason = process.stderr.read() if process.stderr else f"see {log}"
        raise PscomError(f"the gateway did not start: {reason.strip()}")
    pid_file.write_text(f"{process.pid}\n")
    return line.rstrip()


def running(pid_file: Path) -> int | None:
    """Return the pid in `pid_file`, or None if no process has that pid."""
    with suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        os.kill(pid, 0)
        return pid
    return None


def stop(pid_file: Path) -> None:
    """Stop the gateway by SIGTERM, wait until it has ended, and remove `pid_file`.

    Raises `PscomError` if the gateway is not running or has not ended after STOP_SECONDS.
    """
    pid = running(pid_file)
    if pid is None:
        raise PscomError(f"{pid_file}: no process is running")
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        ended, _, _ = select.select([descriptor], [], [], STOP_SECONDS)
    finally:
        os.close(descriptor)
    if not ended:
        raise PscomError(f"process {pid} has not ended within {STOP_SECONDS:g} s")
    pid_file.unlink(missing_ok=True)
