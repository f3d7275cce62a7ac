"""Descriptors: how many this process has left, and the error if none is left."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pscompy.errors import OutOfDescriptors, PscomError, Unsupported

SESSION = 24  # free descriptors that a session needs; it takes about 20
CONNECTION = 3  # descriptors that a connection takes at most: one for its link, two for a lane
_OPEN = Path("/proc/self/fd")


def limit() -> int:
    """Return how many descriptors this process may have: RLIMIT_NOFILE."""
    count = os.sysconf("SC_OPEN_MAX")
    return count if count >= 0 else sys.maxsize


def left(count: int) -> bool:
    """Return whether `count` more descriptors can be opened now."""
    return available(count) == count


def available(count: int) -> int:
    """Return how many of `count` more descriptors can be opened now. The last resort is to open
    and close them, which costs a microsecond for each."""
    return count if limit() - _in_use() >= count else _openable(count)


def _in_use() -> int:
    """Return how many descriptors are open: the size of the folder /proc/self/fd since Linux 6.2,
    before that the number of its entries. Returns `sys.maxsize` if that folder does not exist."""
    try:
        return _OPEN.stat().st_size or len(list(_OPEN.iterdir()))
    except OSError:
        return sys.maxsize


def _openable(count: int) -> int:
    made = []
    try:
        for _ in range(count):
            made.append(os.eventfd(0, os.EFD_CLOEXEC))
    except OSError as error:
        return len(made) if exhausted(error) else count  # `typed` reports any other error
    finally:
        for descriptor in made:
            os.close(descriptor)
    return count


def exhausted(error: OSError) -> bool:
    """Return whether this error means that no descriptor is left."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def remedy() -> str:
    """Return the error text if no descriptor is left: the limit, and how to raise it."""
    return (
        f"no descriptor is left: this process may have {limit()} (RLIMIT_NOFILE, which"
        " `ulimit -n` raises)"
    )


def why(error: OSError) -> str:
    """Return the error's text, which is `remedy` if no descriptor is left."""
    return remedy() if exhausted(error) else error.strerror or str(error)


def require_session() -> None:
    """Raise `OutOfDescriptors` if too few descriptors are left for a session."""
    if not left(SESSION):
        raise OutOfDescriptors(
            f"a session needs {SESSION} free descriptors, and this process may have {limit()} in"
            " all (RLIMIT_NOFILE): raise that with `ulimit -n`, or close some"
        )


@contextlib.contextmanager
def typed() -> Iterator[None]:
    """Turn an error of the system that means that no descriptor is left into `OutOfDescriptors`,
    and one of a system call that is refused here into `Unsupported`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, PscomError):
            raise
        if exhausted(error):
            raise OutOfDescriptors(f"a session cannot be opened: {remedy()}") from error
        if call := _refused():
            raise Unsupported(
                f"a session cannot be opened: {call} is refused here ({error.strerror}), by a"
                " filter of system calls, for example that of a container"
            ) from error
        raise


def _refused() -> str:
    """Return which system call that makes a descriptor for waiting is refused, or ""."""
    calls: dict[str, Callable[[], Any]] = {
        "eventfd": lambda: os.eventfd(0, os.EFD_CLOEXEC),
        "epoll": select.epoll,
    }
    for name, call in calls.items():
        try:
            made = call()
        except OSError:
            return name
        os.close(made) if isinstance(made, int) else made.close()
    return ""


class Spare:
    """One descriptor in reserve, for the moment when no other is left."""

    def __init__(self) -> None:
        self._kept = os.eventfd(0, os.EFD_CLOEXEC)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Free the reserved descriptor inside `with`, so that a call can open one. Another thread
        may open one first."""
        self.close()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # if no descriptor is left, the reserve stays empty
                self._kept = os.eventfd(0, os.EFD_CLOEXEC)

    def close(self) -> None:
        kept, self._kept = self._kept, -1
        if kept >= 0:
            os.close(kept)
