"""Who this process is, as it tells its peers."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
from pathlib import Path

from pscompy.control.frames import NAME_MAX, UID_SIZE, Identity
from pscompy.errors import ConfigError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_numbers = itertools.count()


def make_identity(name: str | None = None, rank: int = -1, job: str = "") -> Identity:
    """The identity of a new session; without a name it gets one that nobody else has."""
    uid = secrets.token_bytes(UID_SIZE)
    hostname = socket.gethostname()
    if name is None:
        name = f"{hostname}.{os.getpid()}.{next(_numbers)}.{uid[:3].hex()}"
    check_name(name)
    return Identity(
        uid=uid,
        name=name,
        host=_boot_id() or hostname,
        hostname=hostname,
        user=os.geteuid(),
        pid=os.getpid(),
        rank=rank,
        job=job,
    )


def check_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a session's name is a str, not {type(name).__name__}")
    if not name or len(name.encode("utf-8", "replace")) > NAME_MAX or not name.isprintable():
        raise ConfigError(f"a session's name has 1 to {NAME_MAX} printable characters: {name!r}")


def _boot_id() -> str:
    """The same for all processes under one running kernel, empty if it does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
