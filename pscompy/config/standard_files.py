"""The descriptors 0, 1 and 2 of a process that was started without them, as daemons are."""

from __future__ import annotations

import os


def open_standard_files() -> None:
    """Open /dev/null for each of the descriptors 0, 1 and 2 that is closed, so that none of ours
    gets its number: programs, libraries and children read and write these three.

    The kernel gives out the lowest number that is free, so no descriptor is replaced that another
    thread opens meanwhile.
    """
    while not all(map(_is_open, range(3))):
        opened = os.open(os.devnull, os.O_RDWR)
        if opened > 2:  # another thread has just opened the last one
            os.close(opened)
        else:
            os.set_inheritable(opened, True)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
