"""Descriptors: how many this process has left, and what to say where none is."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

from pscompy.errors import OutOfDescriptors

SESSION = 24  # free ones without which no session is opened: it takes about 20
CONNECTION = 3  # of one connection, at most: its precon link, and two of its lane


def limit() -> int:
    """How many this process may have: RLIMIT_NOFILE."""
    told = os.sysconf("SC_OPEN_MAX")
    return told if told >= 0 else sys.maxsize


def left(count: int) -> bool:
    """Whether `count` more can be had now; they are made, and closed again."""
    made = []
    try:
        for _ in range(count):
            made.append(os.eventfd(0, os.EFD_CLOEXEC))
    except OSError:
        return False
    finally:
        for descriptor in made:
            os.close(descriptor)
    return True


def exhausted(error: OSError) -> bool:
    """Whether this error says that there is no descriptor left."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def remedy() -> str:
    return (
        f"no descriptor is left: this process may have {limit()} (RLIMIT_NOFILE, which"
        " `ulimit -n` raises)"
    )


def why(error: OSError) -> str:
    """The text of the error for people, with the remedy where there is one."""
    return remedy() if exhausted(error) else error.strerror or str(error)


def require_session() -> None:
    """`OutOfDescriptors`: too few are left for a session."""
    if not left(SESSION):
        raise OutOfDescriptors(
            f"a session needs {SESSION} free descriptors, and this process may have {limit()} in"
            " all (RLIMIT_NOFILE): raise that with `ulimit -n`, or close some"
        )


@contextlib.contextmanager
def typed() -> Iterator[None]:
    """An error that says that no descriptor is left becomes `OutOfDescriptors`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, OutOfDescriptors) or not exhausted(error):
            raise
        raise OutOfDescriptors(f"a session cannot be opened: {remedy()}") from error


class Spare:
    """One descriptor that is kept for the time when no other is left."""

    def __init__(self) -> None:
        self._kept = os.eventfd(0, os.EFD_CLOEXEC)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Inside, one descriptor can be had, unless another thread takes it first."""
        self.close()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # then the next one who needs it has none
                self._kept = os.eventfd(0, os.EFD_CLOEXEC)

    def close(self) -> None:
        kept, self._kept = self._kept, -1
        if kept >= 0:
            os.close(kept)
