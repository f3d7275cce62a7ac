"""The descriptors 0, 1 and 2 of a process that was started without them, as daemons are."""

from __future__ import annotations

import os


def open_standard_files() -> None:
    """Open /dev/null for each of the descriptors 0, 1 and 2 that is closed, so that none of ours
    gets its number: programs, libraries and children read and write these three."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:  # another thread has closed a lower one
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
