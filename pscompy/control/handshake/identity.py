"""The identity that a session sends to its peers."""

from __future__ import annotations

import itertools
import os
import socket

from pscompy.control.handshake.frames import NAME_MAX, UID_SIZE, Identity
from pscompy.errors import ConfigError

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_numbers = itertools.count()


def make_identity(
    name: str | None = None, rank: int = -1, job: str = "", module: int = 0
) -> Identity:
    """Return the identity of a new session; without a name it gets a unique one."""
    uid = os.urandom(UID_SIZE)
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
        module=str(module),
        rank=rank,
        job=job,
    )


def check_name(name: str) -> None:
    """Raise if a session cannot have this name: `TypeError` or `ConfigError`."""
    if not isinstance(name, str):
        raise TypeError(f"a session's name is a str, not {type(name).__name__}")
    if not name or len(name.encode("utf-8", "replace")) > NAME_MAX or not name.isprintable():
        raise ConfigError(f"a session's name has 1 to {NAME_MAX} printable characters: {name!r}")


def _boot_id() -> str:
    """Return the id that all processes under one running kernel share, or ""."""
    try:
        descriptor = os.open(_BOOT_ID, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 64).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
