"""The part of configuration.md that is generated from the declarations of the variables."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from pscompy.config.config import Row
from pscompy.discovery import registry

MARK = "<!-- variables -->"


def as_markdown() -> str:
    """Markdown with one section and table for the core and for each transport of pscompy."""
    config, found = registry.load(environ={})
    ours = {
        it.name.upper()
        for it in found
        if it.source.startswith(("pscompy.plugins.", "pscompy_gateway"))
    }
    sections = [
        _section(name, rows)
        for name, rows in groupby(config.rows(), key=lambda row: row.section)
        if not name or name in ours
    ]
    return "\n\n".join(sections)


def _section(name: str, rows: Iterable[Row]) -> str:
    title = f"Variables of {name.lower()}" if name else "General variables"
    lines = [_line(row) for row in rows]
    return "\n".join([f"## {title}", "", "| variable | default | |", "|---|---|---|", *lines])


def _line(row: Row) -> str:
    default = f"`{row.default}`" if row.default else "(none)"
    return f"| `{row.name}` | {default} | {row.doc.replace('|', chr(92) + '|')} |"
