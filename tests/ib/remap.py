"""Two ranks send memory that is unmapped and mapped again at the same address; see
suite_cache.py. The arguments are rendezvous schemes, each for a world of its own.

Sends and receives must use the memory that is mapped now, not the former one.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from pscompy import World

SIZE = 1 << 20
TRIES = 20
MREMAP_MAYMOVE = 1
M_MMAP_THRESHOLD = -3
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = LIBC.mremap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2, *[ctypes.c_int] * 2, ctypes.c_size_t]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]

Bytes = NDArray[np.uint8]
Way = Callable[[World, Bytes, int], None]


def address(array: Bytes) -> int:
    return int(array.__array_interface__["data"][0])


# ---- memory that is unmapped and mapped again ----------------------------------


def reborn(make: Callable[[], Bytes]) -> Iterator[Bytes]:
    """An array, and after it is freed another one at the same address."""
    array = make()
    place = address(array)
    yield array
    del array
    elsewhere = []
    for _ in range(TRIES):
        array = make()
        if address(array) == place:
            yield array
            return
        elsewhere.append(array)
    raise AssertionError("the allocator did not use the place again")


def from_numpy() -> Iterator[Bytes]:
    return reborn(lambda: np.zeros(SIZE, np.uint8))


def from_bytearray() -> Iterator[Bytes]:
    return reborn(lambda: np.frombuffer(bytearray(SIZE), np.uint8))


def from_mmap() -> Iterator[Bytes]:
    return reborn(lambda: np.frombuffer(mmap.mmap(-1, SIZE), np.uint8))


def dropped() -> Iterator[Bytes]:
    """The mapping stays, but its pages are replaced."""
    memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    yield np.frombuffer(memory, np.uint8)
    memory.madvise(mmap.MADV_DONTNEED)
    yield np.frombuffer(memory, np.uint8)


def c_map(place: int | None) -> int:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (0x100000 if place else 0)  # FIXED_NOREPLACE
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    given = LIBC.mmap(place, SIZE, protection, flags, -1, 0)
    assert place in (None, given), "this place is taken"
    return int(given)


def c_array(place: int) -> Bytes:
    return np.ctypeslib.as_array((ctypes.c_uint8 * SIZE).from_address(place))


def from_c() -> Iterator[Bytes]:
    place = c_map(None)
    yield c_array(place)
    assert LIBC.munmap(place, SIZE) == 0
    c_map(place)
    yield c_array(place)
    LIBC.munmap(place, SIZE)


def moved() -> Iterator[Bytes]:
    """The pages move to another address with their contents."""
    place = c_map(None)
    yield c_array(place)
    before = c_array(place).copy()
    away = LIBC.mremap(place, SIZE, 2 * SIZE, MREMAP_MAYMOVE)
    if away == place:
        return  # mremap has grown the mapping in place
    c_map(place)
    yield c_array(place)
    assert (c_array(away) == before).all(), "memory was written that had moved away"
    LIBC.munmap(place, SIZE)
    LIBC.munmap(away, 2 * SIZE)


KINDS = (from_numpy, from_bytearray, from_mmap, dropped, from_c, moved)


# ---- sending it ----------------------------------------------------------------


def send(world: World, array: Bytes, value: int) -> None:
    array[:] = value
    for _ in range(2):
        world.send(array, dest=1 - world.rank)


def receive(world: World, array: Bytes, value: int) -> None:
    for _ in range(2):
        array[:] = 0
        world.recv(array, source=1 - world.rank)
        assert (array == value).all(), (value, np.unique(array))


def remap(world: World, way: Way) -> int:
    """Unmap and map this rank's memory by each kind; returns how often."""
    times = 0
    for kind in KINDS:
        memory = kind()
        for value in (1, 2):
            array = next(memory, None)
            world.send(b"" if array is None else b"go", dest=1 - world.rank)
            if array is not None:
                way(world, array, value)
                times += value == 2
            del array
        next(memory, None)
    return times


def follow(world: World, way: Way) -> None:
    array = np.zeros(SIZE, np.uint8)
    for _ in KINDS:
        for value in (1, 2):
            if world.recv(source=1 - world.rank) == b"go":
                way(world, array, value)


def exchange(world: World, scheme: str) -> None:
    if world.rank == 0:
        print("remapped", scheme, remap(world, send), flush=True)
        follow(world, send)
    else:
        follow(world, receive)
        print("remapped", scheme, remap(world, receive), flush=True)


def main() -> None:
    LIBC.mallopt(M_MMAP_THRESHOLD, SIZE // 2)  # so that malloc maps each array separately
    for scheme in sys.argv[1:]:
        with World(config={"RNDV_SCHEME": scheme}) as world:
            exchange(world, scheme)


if __name__ == "__main__":
    main()
