"""The transports that other packages have installed: entry points of the group "pscompy".

To find them takes reading what every installed package says of itself, so a launcher does it once
for its job and hands the result to the ranks (PSP_INSTALLED): a table of what it found, and of the
folders where it looked with the time of their last change. It comes from outside, so a rank
believes it only as far as it can check; otherwise it looks for itself.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from pscompy.discovery import shadows

GROUP = "pscompy"
PROJECT = "pscompy"  # whose own entries are tested, and read without importlib.metadata
OWN = "pscompy.plugins."  # found without asking

_VERSION = "1"
_ITEM, _FIELD = "|", ","  # what stands between items, and between the fields of one
_METADATA = (".dist-info", "egg-info", ".egg")
_WITHOUT = (".dist-info", "egg-info")  # no entry points there: it has none


class Unbelievable(Exception):
    """Why a table is not used."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A module that declares the transport `name`.

    `places` are the files or folders where `distribution` has put the module's top package; none
    where it does not tell.
    """

    name: str
    module: str
    distribution: str = ""
    places: tuple[str, ...] = ()


def scan() -> list[Entry]:
    """All entries, in the order of sys.path, ours last."""
    packages = (package for path in sys.path for package in _holders(path))
    ours = next((_our_entries(package) for package in packages if _is_ours(package)), [])
    if not (_strange_finders() or any(map(_may_declare, sys.path))):
        return ours
    from importlib import metadata  # not before: 10 ms, where mostly there is nothing to find

    others = [
        Entry(it.name, it.module, *shadows.origin(it.module, it.dist))
        for it in metadata.entry_points(group=GROUP)
        if it.dist is None or it.dist.name != PROJECT
    ]
    return others + ours


def _is_ours(holder: str) -> bool:
    name = os.path.basename(holder)  # noqa: PTH119
    return name == f"{PROJECT}.egg-info" or (
        name.startswith(f"{PROJECT}-") and name.endswith(_WITHOUT)
    )


def _our_entries(holder: str) -> list[Entry]:
    """The packages that pscompy's distribution brings beside pscompy, and beside it on the disk."""
    try:
        with open(f"{holder}/entry_points.txt", encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
    except OSError:
        return []
    section = text.partition(f"[{GROUP}]\n")[2].partition("\n[")[0]
    pairs = [line.replace(" ", "").partition("=") for line in section.splitlines() if line]
    folder = os.path.realpath(f"{__file__}/../../..")
    folders = folder, f"{folder}/gateway"  # installed, or a checkout
    return [
        Entry(name, module, PROJECT, tuple(f"{it}/{module.partition('.')[0]}" for it in folders))
        for name, _, module in pairs
        if not module.startswith(OWN)
    ]


def _may_declare(path: str) -> bool:
    """Whether a folder may have packages with entries, beside our own."""
    return any(map(_may_have_entries, _holders(path)))


def _may_have_entries(holder: str) -> bool:
    """Whether a package may have entries, beside our own."""
    if _is_ours(holder):
        return False
    try:
        descriptor = os.open(f"{holder}/entry_points.txt", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return not holder.lower().endswith(_WITHOUT)
    with os.fdopen(descriptor, "rb") as file:
        return _names_modules(file.read())


def _names_modules(entry_points: bytes) -> bool:
    """Whether the section of our group names a module that is not our own."""
    _, _, section = entry_points.replace(b" ", b"").partition(b"[%b]" % GROUP.encode())
    lines = section.partition(b"\n[")[0].splitlines()
    return any(line and b"=%b" % OWN.encode() not in line for line in lines)


# ---- tables -------------------------------------------------------------------------------------


def pack() -> str:
    """The table for processes of the same Python; empty where they must look for themselves.

    The first folder of sys.path, where the program lies, is another one in each process.
    """
    if _may_declare(sys.path[0]) or _strange_finders():
        return ""
    folders = [(str(_changed(path)), path) for path in sys.path[1:]]
    entries = [(it.name, it.module, it.distribution, *it.places) for it in scan()]
    items = [(_VERSION,), *folders, (), *entries]
    if any(set(_ITEM + _FIELD) & set(field) for item in items for field in item):
        return ""
    return _ITEM.join(_FIELD.join(item) for item in items)


def unpack(table: str) -> list[Entry]:
    """What `scan` would find. Unbelievable: the table is malformed, or stale."""
    version, *items = [tuple(item.split(_FIELD)) for item in table.split(_ITEM)]
    if version != (_VERSION,) or ("",) not in items:
        raise Unbelievable("it is malformed")
    middle = items.index(("",))
    _check_folders(items[:middle])
    return [_entry(item) for item in items[middle + 1 :]]


def _check_folders(items: list[tuple[str, ...]]) -> None:
    if any(len(item) != 2 or not item[0].isdecimal() for item in items):
        raise Unbelievable("it is malformed")
    known = {path: int(changed) for changed, path in items}
    if [path for path in sys.path if path in known] != list(known):
        raise Unbelievable("it was made with another sys.path")
    for path in sys.path:
        if path in known and _changed(path) != known[path]:
            raise Unbelievable(f"{path} has changed")
        if path not in known and _may_declare(path):
            raise Unbelievable(f"it does not know {path}")
    if _strange_finders():
        raise Unbelievable("there are other ways to find packages")


def _entry(item: tuple[str, ...]) -> Entry:
    if len(item) < 3:
        raise Unbelievable("it is malformed")
    name, module, distribution, *places = item
    if not (name and all(part.isidentifier() for part in module.split("."))):
        raise Unbelievable("it is malformed")
    return Entry(name, module, distribution, tuple(places))


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0


def _holders(path: str) -> list[str]:
    """What holds the metadata of packages in a folder of sys.path."""
    try:
        with os.scandir(path or os.curdir) as found:
            return [it.path for it in found if it.name.lower().endswith(_METADATA)]
    except NotADirectoryError:  # an archive is read by importlib.metadata
        return [path]
    except OSError:
        return []


def _strange_finders() -> bool:
    """Whether others than Python's own look for distributions."""
    return sum(hasattr(finder, "find_distributions") for finder in sys.meta_path) > 1
