"""The numbers of MPI's constants and predefined handles, for the functions that live in Python.

`constants.ERR_COMM` is MPI_ERR_COMM of abi_mpich.h, which is read here, so that the ABI stands in
one file only. MPIX_ and PSC_MPI_ are left out of the names, as MPI_ is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

HEADER = Path(__file__).with_name("abi_mpich.h")

NAME = r"(?:PSC_)?MPIX?_(\w+)"
ITEM = rf"\bX\((?:{NAME}|(\w+)), (\w+)"  # of a list: X(COMM_SELF, 0x44000001)
MEMBER = rf"^ +{NAME} = (-?\w+)"  # of an enumeration


def read(text: str) -> Iterator[tuple[str, int]]:
    """The constants that a header defines, as C has them."""
    known: dict[str, int] = {}
    for with_prefix, without, number in re.findall(ITEM, text):
        if number[0].isdigit():
            known[with_prefix or without] = signed(int(number, 0))
    for name, number in re.findall(MEMBER, text, re.M):
        another = re.fullmatch(NAME, number)
        known[name] = known[another[1]] if another else signed(int(number, 0))
    yield from known.items()


def signed(number: int) -> int:
    """The number as an int of C, which a handle is."""
    return number - (1 << 32) if number >= 1 << 31 else number


NUMBERS = dict(read(HEADER.read_text()))


def __getattr__(name: str) -> int:
    try:
        return NUMBERS[name]
    except KeyError:
        raise AttributeError(f"abi_mpich.h has no MPI_{name}") from None
