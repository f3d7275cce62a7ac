"""The list of cases: all groups, by name."""

from __future__ import annotations

from bench import rails
from bench.cases import collectives, growth, messages, mpi, objects, overlap, programs
from bench.rows import Group
from pscompy.cli.arguments import words

_GROWTH = "growth"
_FAMILIES = (_GROWTH, "overlap", "collectives", "mpi")
# The table in README.md: groups, and cells of each.
README = {
    "shm-latency": ("shm one way, 8 B",),
    "shm-bandwidth": ("shm bandwidth, 1 MiB",),
    "shm-rate": ("shm messages of 8 B",),
    "shm-objects": ("a small dictionary, one way", "array of 1 MiB, one way"),
    "tcp-latency": ("tcp one way, 8 B",),
    "tcp-bandwidth": ("tcp bandwidth, 1 MiB",),
}


def groups() -> dict[str, Group]:
    families = messages, objects, overlap, collectives, programs, rails, mpi, growth
    return {group.name: group for family in families for group in family.groups()}


def grows(name: str) -> bool:
    return name.startswith(f"{_GROWTH}-")


def chosen(text: str, known: dict[str, Group]) -> tuple[str, ...]:
    """The groups with these names, which commas separate; "growth", "overlap", "collectives"
    and "mpi" stand for all groups whose names begin so, "readme" for those of the table in
    README.md."""
    several = {"readme": list(README)}
    for family in _FAMILIES:
        several[family] = [name for name in known if name.startswith(f"{family}-")]
    named = words(text, (*known, *several))
    return tuple(name for word in named for name in several.get(word, [word]))
