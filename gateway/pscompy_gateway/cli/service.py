"""Starting a gateway in the background, and stopping it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pscompy import PscomError

STOP_SECONDS = 20.0
PID_MAX = 1 << 22  # of Linux


def start(arguments: Sequence[str], pid_file: Path, log: Path | None) -> str:
    """Start a gateway with these arguments in the background, and write its pid to `pid_file`.

    Returns its first line of output once it serves. Raises `PscomError` if it does not start, or if
    a file cannot be written.
    """
    pid = _pid(pid_file)
    if pid is not None and _is_gateway(pid):
        raise PscomError(f"{pid_file}: process {pid} is running")
    with _named(f"{log} cannot be written"), Path(log or os.devnull).open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "pscompy_gateway", "run", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors if log else subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    try:
        with _named(f"{pid_file} cannot be written"):
            pid_file.write_text(f"{process.pid}\n")
    except PscomError:
        process.terminate()
        process.wait()
        raise
    assert process.stdout is not None
    line = process.stdout.readline()
    if "serves" not in line:
        pid_file.unlink(missing_ok=True)
        reason = process.stderr.read() if process.stderr else f"see {log}"
        raise PscomError(f"the gateway did not start: {reason.strip()}")
    return line.rstrip()


def stop(pid_file: Path) -> None:
    """Stop the gateway by SIGTERM, wait until it has ended, and remove `pid_file`.

    Raises `PscomError` if the gateway is not running or has not ended after STOP_SECONDS.
    """
    pid = _pid(pid_file)
    if pid is None:
        raise PscomError(f"{pid_file}: no process is running")
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # no process has this number, but perhaps a thread
        raise PscomError(f"{pid_file}: no process is running") from None
    try:
        if not _is_gateway(pid):
            raise PscomError(f"{pid_file}: process {pid} is no gateway")
        with _named(f"process {pid} cannot be stopped"):
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        ended, _, _ = select.select([descriptor], [], [], STOP_SECONDS)
    finally:
        os.close(descriptor)
    if not ended:
        raise PscomError(f"process {pid} has not ended within {STOP_SECONDS:g} s")
    with _named(f"{pid_file} cannot be removed"):
        pid_file.unlink(missing_ok=True)


def _pid(pid_file: Path) -> int | None:
    """Return the pid in `pid_file`, or None if the file does not exist or is empty. Raises
    `PscomError` if it holds anything else, or cannot be read."""
    with _named(f"{pid_file} cannot be read"):
        text = pid_file.read_bytes().strip() if pid_file.exists() else b""
    if not text:
        return None
    if not (text.isdigit() and len(text) < 10 and 0 < int(text) <= PID_MAX):
        raise PscomError(f"{pid_file} holds no process id")
    return int(text)


def _is_gateway(pid: int) -> bool:
    """Whether the process is a gateway, and not another one, or a thread, that has got the number
    of a gateway."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        status = Path(f"/proc/{pid}/status").read_bytes().split()
    except OSError:
        return False
    return b"pscompy_gateway" in words and status[status.index(b"Tgid:") + 1] == b"%d" % pid


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Raise `PscomError`, which says `what` has failed, for an `OSError`."""
    try:
        yield
    except OSError as error:
        raise PscomError(f"{what}: {error.strerror}") from error
