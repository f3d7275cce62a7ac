"""All groups, by name."""

from __future__ import annotations

from bench import jobs, pairs, parcels
from bench.rows import Group


def groups() -> dict[str, Group]:
    return {group.name: group for group in (*pairs.groups(), *parcels.groups(), *jobs.groups())}
