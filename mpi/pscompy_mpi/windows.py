"""Windows on memory that the ranks of a node share: making and freeing them, and what there is to
know about them. Waiting for the other ranks, at fences and locks, is in C (src/window.c).
"""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from pscompy import capi
from pscompy_mpi import communicators, constants, host
from pscompy_mpi.carrier import MpiError, named
from pscompy_mpi.handles import objects

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pscompy import Communicator
    from pscompy_mpi.communicators import Comm
    from pscompy_mpi.groups import Group
    from pscompy_mpi.info import Info


class Part(NamedTuple):
    """A rank's part of the memory, in bytes; `unit` is what the rank counts in."""

    size: int
    unit: int
    offset: int


class Memory(NamedTuple):
    """The memory of all ranks, and a descriptor of a file that has a byte to lock for each."""

    array: NDArray[Any]
    parts: list[Part]
    locks: int


class Win:
    """A window of MPI, with a communicator of its own."""

    def __init__(self, comm: Comm, memory: Memory, info: dict[str, str]) -> None:
        self.comm = comm
        self.array = memory.array
        self.parts = memory.parts
        self.info = info
        self.name = ""
        self.handle = host.state().native.win_create(comm.handle, len(self.parts), memory.locks)
        own = memory.parts[comm.inner.rank]
        self._values = {
            constants.WIN_SIZE: ctypes.c_long(own.size),
            constants.WIN_DISP_UNIT: ctypes.c_int(own.unit),
            constants.WIN_CREATE_FLAVOR: ctypes.c_int(constants.WIN_FLAVOR_SHARED),
            constants.WIN_MODEL: ctypes.c_int(constants.WIN_UNIFIED),
        }
        # the attributes that a window has from the start: addresses of numbers, and the memory's
        self.predefined = {key: ctypes.addressof(it) for key, it in self._values.items()}
        self.predefined[constants.WIN_BASE] = self.address(own)

    def address(self, part: Part) -> int:
        return int(self.array.ctypes.data) + part.offset


# ---- making and freeing ----


def win_allocate_shared(size: int, unit: int, info: Info | None, comm: Comm) -> tuple[int, Win]:
    """Share memory among all ranks, each of which has `size` bytes, behind those of the rank before
    it."""
    inner = communicators.turn(communicators.intra(comm)).dup()
    try:
        memory = _memory(inner, size, unit)
    except BaseException:
        inner.close()
        raise
    made = Win(communicators.create(inner), memory, dict(info.pairs) if info else {})
    objects["w"][made.handle] = made
    return made.predefined[constants.WIN_BASE], made


def _memory(inner: Communicator, size: int, unit: int) -> Memory:
    wishes = inner.allgather_obj((size, unit))
    sizes = [it for it, _ in wishes]
    if min(sizes) < 0:
        raise MpiError(constants.ERR_SIZE)
    if min(it for _, it in wishes) < 1:
        raise MpiError(constants.ERR_DISP)
    ends = itertools.accumulate(sizes)
    parts = [Part(n, unit, end - n) for (n, unit), end in zip(wishes, ends, strict=True)]
    try:
        return Memory(inner.shared(sum(sizes), "B"), parts, capi.shared_file(inner, 1))
    except ValueError as error:
        raise MpiError(constants.ERR_RMA_SHARED, str(error)) from None
    except OSError as error:
        raise MpiError(constants.ERR_NO_MEM, str(error)) from None


def win_free(win: Win) -> None:
    """End a window, once all ranks have come; a null handle replaces it."""
    from pscompy_mpi import attributes

    attributes.delete_all("w", win.handle)
    win.comm.inner.barrier()
    del objects["w"][win.handle]
    host.state().native.win_destroy(win.handle)
    communicators.comm_free(win.comm)


# ---- what there is to know ----


def win_shared_query(win: Win, rank: int) -> tuple[int, int, int]:
    """Return the size and unit of a rank's part, and its address in this process. MPI_PROC_NULL
    stands for the first rank that has any memory."""
    if rank == constants.PROC_NULL:
        part = next((it for it in win.parts if it.size), win.parts[0])
    elif rank in range(len(win.parts)):
        part = win.parts[rank]
    else:
        raise MpiError(constants.ERR_RANK)
    return part.size, part.unit, win.address(part)


def win_get_group(win: Win) -> Group:
    return communicators.comm_group(win.comm)


def win_get_info(win: Win) -> Info:
    from pscompy_mpi.info import Info

    return Info(win.info)


def win_set_info(win: Win, info: Info | None) -> None:
    win.info |= info.pairs if info else {}


def win_get_name(win: Win | None) -> tuple[str, int]:
    return named(win.name if win else "MPI_WIN_NULL")


def win_set_name(win: Win, name: str) -> None:
    win.name = name
