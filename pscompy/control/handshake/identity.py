"""The identity of a session, which it sends to its peers."""

from __future__ import annotations

import itertools
import os
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from pscompy.control.handshake.limits import NAME_MAX, UID_SIZE
from pscompy.errors import ConfigError

if TYPE_CHECKING:
    from pscompy.control.handshake.codec import Reader, Writer

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NUMBERS = struct.Struct("<IIi")  # numbers of an identity: user, process, rank
_numbers = itertools.count()


class Identity(NamedTuple):
    """The identity of a session, as the session states it after it has proved the key."""

    uid: bytes  # the session's id, 16 random bytes
    name: str
    host: str  # boot id; processes that share a running kernel have the same
    hostname: str
    user: int
    pid: int
    module: str = ""
    rank: int = -1
    job: str = ""

    def pack(self, to: Writer) -> None:
        to.raw(self.uid)
        for text in (self.name, self.host, self.hostname, self.module, self.job):
            to.text(text, NAME_MAX)
        to.raw(_NUMBERS.pack(self.user, self.pid, self.rank))

    @classmethod
    def unpack(cls, source: Reader) -> Identity:
        uid = source.take(UID_SIZE)
        name, host, hostname, module, job = map(source.text, itertools.repeat(NAME_MAX, 5))
        user, pid, rank = source.numbers(_NUMBERS)
        return cls(uid, name, host, hostname, user, pid, module, rank, job)

    def __str__(self) -> str:
        process = f", pid {self.pid}" if self.pid > 0 else ""  # the pid is 0 until it is known
        return f"{self.name} ({self.hostname}{process})"


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
