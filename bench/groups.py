"""All groups, by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import bench
from bench import jobs, pairs, parcels
from bench.rows import Group
from pscompy.cli.arguments import words

_GROWTH = "growth"


def groups() -> dict[str, Group]:
    found = (*pairs.groups(), *parcels.groups(), *jobs.groups(), *_growth())
    return {group.name: group for group in found}


def _growth() -> Iterator[Group]:
    """How costs grow with numbers: each module bench/growth_NAME.py has a function `group`, which
    returns the group "growth-NAME"."""
    for module in pkgutil.iter_modules(bench.__path__):
        if module.name.startswith(f"{_GROWTH}_"):
            yield importlib.import_module(f"bench.{module.name}").group()


def grows(name: str) -> bool:
    return name.startswith(f"{_GROWTH}-")


def chosen(text: str, known: dict[str, Group]) -> tuple[str, ...]:
    """The groups with these names, which commas separate; "growth" stands for all of growth."""
    growth = [name for name in known if grows(name)]
    named = words(text, (*known, _GROWTH))
    return tuple(name for word in named for name in (growth if word == _GROWTH else [word]))
