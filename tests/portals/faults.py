"""Injects faults into the software NI by the functions of pscompy_softni/fault_injection.c."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pscompy_softni import LIBRARY

from pscompy.testing.process import Far
from pscompy.testing.remote_side import Here


def set_here(faults: Mapping[str, int]) -> None:
    """Set the faults of all interfaces that this process opens from now on."""
    library = ctypes.CDLL(str(LIBRARY))
    for name, value in faults.items():
        assert library.softni_fault_set(name.encode(), ctypes.c_uint64(value)) == 0, name


def set_there(_: Here, faults: Mapping[str, int]) -> None:
    set_here(faults)


@contextmanager
def faulty(faults: Mapping[str, int], far: Far | None = None) -> Iterator[None]:
    """Interfaces opened in this context have these faults, also those of the far process."""
    none = dict.fromkeys(faults, 0)
    set_here(faults)
    if far:
        far(set_there, faults)
    try:
        yield
    finally:
        set_here(none)
        if far and far.alive:
            far(set_there, none)
