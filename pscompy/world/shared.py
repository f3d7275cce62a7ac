"""Arrays that all ranks of a node share.

The first rank makes a file in memory, which has no name. All ranks open it by its descriptor in the
first rank's process, as shm opens segments, and close it once all have mapped it, so the memory is
freed with the last array over it, or the last process. Until then each mapping has a descriptor
(mmap keeps one).
"""

from __future__ import annotations

import errno
import math
import mmap
import operator
import os
import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pscompy.world.collectives import Collectives

_NAME = "pscompy shared"


class _Wish(NamedTuple):
    """The wish of a rank: hashes of its host, and of shape and type."""

    host: bytes
    kind: bytes


class _File(NamedTuple):
    """The file of the first rank, or the number of the error for which there is none."""

    error: int
    process: int
    descriptor: int
    device: int
    inode: int


_WISH = struct.Struct("=8s8s")
_FILE = struct.Struct("=iiiQQ")
_ERROR = struct.Struct("=i")


def shared(ranks: Collectives, host: str, shape: Any, dtype: DTypeLike) -> NDArray[Any]:
    """Return the array; see Communicator.shared. `host` is the kernel under which this rank
    runs."""
    kind, extent = np.dtype(dtype), _extent(shape)
    if kind.hasobject:
        raise TypeError(f"shared: ranks cannot share Python's objects ({kind})")
    _require_same(ranks, _Wish(_hash(host), _hash(f"{extent} {kind.descr}")))
    nbytes = max(1, math.prod(extent) * kind.itemsize)
    descriptor = opened(ranks, nbytes)
    try:
        mapping, error = _map(descriptor, nbytes)
        _raise_first(ranks.gathered(_ERROR.pack(error)))
    finally:
        os.close(descriptor)
    assert mapping is not None
    return np.frombuffer(mapping, kind, math.prod(extent)).reshape(extent)


def opened(ranks: Collectives, nbytes: int) -> int:
    """Return the descriptor of a file in memory, the same file for all ranks, which are on one
    node; each has opened it for itself. OSError on all ranks if one cannot."""
    descriptor = -1
    made, file = _create(nbytes) if ranks.rank == 0 else (-1, _File(0, 0, 0, 0, 0))
    try:
        file = _File(*_FILE.unpack(ranks.gathered(_FILE.pack(*file))[0]))
        descriptor, error = _open(file, nbytes)
        _raise_first(ranks.gathered(_ERROR.pack(error)))
    except BaseException:
        _close(descriptor)
        raise
    finally:
        _close(made)
    return descriptor


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def _extent(shape: Any) -> tuple[int, ...]:
    extent = tuple(map(operator.index, shape if isinstance(shape, Sequence) else (shape,)))
    if any(length < 0 for length in extent):
        raise ValueError(f"shared: the shape {extent} has a negative length")
    return extent


def _hash(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


def _require_same(ranks: Collectives, mine: _Wish) -> None:
    """Raise `ValueError` on all ranks if they are not on one node, or give different shapes."""
    wishes = [_Wish(*_WISH.unpack(it)) for it in ranks.gathered(_WISH.pack(*mine))]
    for rank, wish in enumerate(wishes):
        if wish.host != wishes[0].host:
            raise ValueError(
                f"shared: rank {rank} is on another node than rank 0;"
                " make the array on split_by_node()"
            )
        if wish.kind != wishes[0].kind:
            raise ValueError(f"shared: rank {rank} has another shape or type than rank 0")


def _create(nbytes: int) -> tuple[int, _File]:
    """Make the file, whose pages get memory when they are first used, as those of any array. More
    than the machine has is refused: the file itself could be as long."""
    descriptor = -1
    try:
        if nbytes > os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE:
            raise OSError(errno.ENOMEM, "more than this machine has")
        descriptor = os.memfd_create(_NAME, os.MFD_CLOEXEC)
        os.truncate(descriptor, nbytes)
        found = os.fstat(descriptor)
    except OSError as error:
        return descriptor, _File(error.errno or -1, 0, 0, 0, 0)
    return descriptor, _File(0, os.getpid(), descriptor, found.st_dev, found.st_ino)


def _open(file: _File, nbytes: int) -> tuple[int, int]:
    """Open the file of the first rank. Returns the descriptor, or -1 and the number of an error."""
    if file.error:
        return -1, file.error
    try:
        path = f"/proc/{file.process}/fd/{file.descriptor}"
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return -1, error.errno or -1
    found = os.fstat(descriptor)
    if (found.st_dev, found.st_ino, found.st_size) == (file.device, file.inode, nbytes):
        return descriptor, 0
    os.close(descriptor)
    return -1, errno.ENOENT  # another process has this number here


def _map(descriptor: int, nbytes: int) -> tuple[mmap.mmap | None, int]:
    """Map a file. Returns the number of an error, or 0."""
    try:
        return mmap.mmap(descriptor, nbytes), 0
    except OSError as error:
        return None, error.errno or -1


def _raise_first(errors: Sequence[bytes]) -> None:
    """Raise on all ranks what the first rank could not do that has an error."""
    for rank, packed in enumerate(errors):
        (error,) = _ERROR.unpack(packed)
        if error:
            raise OSError(
                error,
                f"shared: rank {rank} cannot have the memory ({os.strerror(error)}); the ranks of a"
                " node must be of one user, and see each other's processes",
            )
