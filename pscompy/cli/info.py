"""`pscompy info`: the transports, their capabilities, and every variable."""

from __future__ import annotations

import argparse
import json
import platform
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pscompy import Session, __version__, get_include
from pscompy.cli.arguments import ArgumentParser, duration
from pscompy.cli.capabilities import Probe, describe
from pscompy.config.config import Config, Row
from pscompy.discovery import registry

if TYPE_CHECKING:
    from pscompy_mpi.inquiry import Answer

_WIDTH = 100


@dataclass(frozen=True)
class _Entry:
    """A transport with its capabilities, or with the reason why it is not usable."""

    found: registry.Found
    reason: str | None
    capabilities: dict[str, Any] | None


def main(arguments: list[str]) -> int:
    """Show the transports, their capabilities, the MPI of mpi4py, and every variable."""
    options = _parse(arguments)
    if options.peer is not None:
        print(_explain(options.peer, options.timeout, options.json))
        return 0
    config, found = registry.load()
    entries = _examine(config, found)
    rows = [row for row in config.rows() if row.changed or not options.changed]
    print(_as_json(entries, rows) if options.json else _as_text(entries, rows))
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = ArgumentParser(prog="pscompy info", description=main.__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument(
        "--changed", action="store_true", help="show only variables whose value is not the default"
    )
    parser.add_argument(
        "--peer",
        metavar="ADDRESS",
        help="instead, connect to a session that listens there, and explain which transport the"
        " connection takes and why",
    )
    parser.add_argument(
        "--timeout",
        type=duration,
        default=10.0,
        metavar="SECONDS",
        help="for the connection to the peer (%(default)g)",
    )
    return parser.parse_args(arguments)


def _mpi() -> Answer | None:
    """Return which MPI programs of mpi4py get from here, or None if pscompy's is not installed."""
    try:
        from pscompy_mpi import inquiry
    except ModuleNotFoundError:
        return None
    return inquiry.ask()


def _explain(address: str, timeout: float, as_json: bool) -> str:
    with Session() as session, session.connect(address) as connection:
        connection.open(timeout)
        explanation = connection.explain()
    return json.dumps(explanation.as_dict(), indent=2) if as_json else str(explanation)


def _examine(config: Config, found: Iterable[registry.Found]) -> list[_Entry]:
    """Open each transport that is available, in a worker that is used for nothing else."""
    entries = []
    with Probe(config) as probe:
        for it in found:
            awake = it._replace(problem=None) if it.dormant else it
            reason, capabilities = awake.unavailable() or it.problem, None
            if reason is None:
                reason, capabilities = probe.open(it)
            entries.append(_Entry(it, reason, capabilities))
    return entries


def _as_json(entries: list[_Entry], rows: list[Row]) -> str:
    document = {
        "version": __version__,
        "python": platform.python_version(),
        "include": get_include(),
        "transports": [_transport_document(entry) for entry in entries],
        "mpi4py": mpi._asdict() if (mpi := _mpi()) else None,
        "variables": [row._asdict() for row in rows],
    }
    return json.dumps(document, indent=2)


def _transport_document(entry: _Entry) -> dict[str, Any]:
    declared = entry.found.transport
    return {
        "name": entry.found.name,
        "source": entry.found.source,
        "user_priority": entry.found.user_priority,
        "priority": declared.priority if declared else None,
        "available": entry.reason is None,
        "reason": entry.reason,
        "capabilities": entry.capabilities,
    }


def _as_text(entries: list[_Entry], rows: list[Row]) -> str:
    lines = [f"pscompy {__version__}, Python {platform.python_version()}, headers {get_include()}"]
    lines += ["", "Transports, in the order in which they are tried:"]
    for entry in entries:
        lines += _transport_lines(entry)
    lines += ["", "MPI of a program that imports mpi4py:", *_mpi_lines()]
    section = None
    for row in rows:
        if row.section != section:
            section = row.section
            lines += ["", f"Variables{f' of {section.lower()}' if section else ''}:"]
        lines += _variable_lines(row)
    return "\n".join(lines)


def _mpi_lines() -> list[str]:
    answer = _mpi()
    if answer is None:
        return ["  pscompy_mpi is not installed"]
    texts = [f"{answer.version}, {answer.library}"] if answer.version else []
    return [f"  {it}" for it in [*texts, answer.reason]]


def _transport_lines(entry: _Entry) -> list[str]:
    declared = entry.found.transport
    rank = f"{entry.found.user_priority}, {declared.priority}" if declared else "-"
    state = _state(entry)
    head = f"  {entry.found.name:10} priority {rank:8} {state}"
    lines = textwrap.wrap(head, _WIDTH, subsequent_indent=" " * 45, break_long_words=False)
    for text in describe(entry.capabilities) if entry.capabilities else []:
        lines += textwrap.wrap(text, _WIDTH, initial_indent=" " * 13, subsequent_indent=" " * 15)
    return lines


def _state(entry: _Entry) -> str:
    if entry.reason is None:
        return "available"
    dormant = entry.found.dormant and entry.reason == entry.found.problem
    return entry.reason if dormant else f"unavailable: {entry.reason}"


def _variable_lines(row: Row) -> list[str]:
    value = row.value or '""'
    default = f", default {row.default}" if row.changed and row.default else ""
    head = f"  {row.name} = {value}  ({row.origin}{default})"
    return [
        head,
        *textwrap.wrap(row.doc, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6),
    ]
