"""The results of a run: a document for each group, and one table of all groups."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.rounds import Rounds
from bench.rows import MPI, OWN, Cell, Group
from pscompy import __version__

Document = dict[str, Any]


def document(group: Group, rounds: Rounds, near_ns: float) -> Document:
    """The document of a group: all figures, their medians and their bars."""
    launched = [
        {**asdict(launch), "fault": rounds.fault(launch, near_ns)} for launch in rounds.launched
    ]
    libraries = [name for name in group.launches if name not in rounds.missing]
    taken = _comparable(libraries, launched)
    return {
        "group": group.name,
        "title": group.title,
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
        "machine": _machine(),
        "version": f"{__version__} {_commit()}".strip(),
        "variables": {k: v for k, v in os.environ.items() if k.startswith("PSP_")},
        "near_ns": near_ns,
        "libraries": libraries,
        "missing": rounds.missing,
        "launches": launched,
        "taken": sorted({launch["fault"] for launch in taken}),
        "cells": [_cell(cell, libraries, taken) for cell in group.cells],
    }


def _comparable(libraries: list[str], launched: list[Document]) -> list[Document]:
    """The launches whose figures are used: those without a fault. If a library has none, the
    launches of all libraries on cores far apart are used, so that the comparison stays fair; if a
    library has none of these either, all launches are used."""
    for faults in (("",), ("cores far apart",)):
        taken = [launch for launch in launched if launch["fault"] in faults]
        if {launch["library"] for launch in taken} == set(libraries):
            return taken
    return launched


def _cell(cell: Cell, libraries: list[str], taken: list[Document]) -> Document:
    medians: dict[str, float] = {}
    for library in libraries:
        mine = [launch["figures"] for launch in taken if launch["library"] == library]
        values = [figures[cell.name] for figures in mine if cell.name in figures]
        if values:
            medians[library] = statistics.median(values)
    peers = [medians[name] for name in cell.against if name in medians]
    ratio = None
    if peers and OWN in medians:
        ratio = medians[OWN] / (min(peers) if cell.less_is_better else max(peers))
    held = ratio if cell.against else medians.get(OWN)
    return {
        "name": cell.name,
        "unit": cell.unit,
        "size": cell.size,
        "over": cell.over,
        "less_is_better": cell.less_is_better,
        "against": cell.against,
        "medians": medians,
        "ratio": ratio,
        "bar": cell.bar,
        "passed": None if held is None or cell.bar is None else _passes(cell, held),
    }


def _passes(cell: Cell, held: float) -> bool:
    assert cell.bar is not None
    return held <= cell.bar if cell.less_is_better else held >= cell.bar


def _machine() -> str:
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    system = f"{platform.system()} {platform.release()}"
    return f"{len(names)} x {names[0]}, {system}, Python {platform.python_version()}"


def _commit() -> str:
    """The version of the checkout, with a + if it has been changed."""
    command = ["git", "describe", "--always", "--dirty=+"]
    ended = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    return ended.stdout.strip()


# ---- the table ----------------------------------------------------------------------------------


def write(folder: Path, made: Document) -> None:
    """Add a group to the folder, and write the table of all groups in it."""
    (folder / f"{made['group']}.json").write_text(json.dumps(made, indent=1))
    documents = load(folder)
    text = "# Measured\n\n" + "\n".join(as_markdown(document) for document in documents)
    (folder / "table.md").write_text(text)


def load(folder: Path) -> list[Document]:
    paths = (path for path in sorted(folder.glob("*.json")) if path.stem != "near")
    return [read(folder, path.stem) for path in paths]


def read(folder: Path, group: str) -> Document:
    document: Document = json.loads((folder / f"{group}.json").read_text())
    return document


def as_markdown(made: Document) -> str:
    libraries = made["libraries"]
    head = ["", *libraries, "ratio", "bar", ""]
    lines = [
        f"## {made['title']}",
        "",
        f"{made['date']}, pscompy {made['version']}, {made['machine']}. {_quality(made)}",
        "",
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(_line(cell, libraries) for cell in made["cells"]),
        "",
    ]
    ratios = [cell["ratio"] for cell in made["cells"] if cell["ratio"]]
    if len(ratios) > 1 and len({cell["unit"] for cell in made["cells"]}) == 1:
        lines.append(f"Geometric mean of the ratios: {statistics.geometric_mean(ratios):.3g}\n")
    lines += [f"{name} is missing: {why}\n" for name, why in made["missing"].items()]
    return "\n".join(lines)


def readme_table(folder: Path, cells: Mapping[str, Sequence[str]]) -> str:
    """The table in README.md, of cells of groups: pscompy, mpi4py over the faster of its MPI
    libraries, and how many times as fast pscompy is."""
    documents = [read(folder, group) for group in cells]
    lines = [
        _compared(cell)
        for made in documents
        for cell in made["cells"]
        if cell["name"] in cells[made["group"]]
    ]
    head = ["| | pscompy | mpi4py | times as fast |", "|---|---|---|---|"]
    last = documents[-1]
    origin = f"{last['machine']}; {last['date'][:10]}, `./run bench --only readme`."
    return "\n".join([*head, *lines, "", origin])


def _compared(cell: Document) -> str:
    ours, less = cell["medians"].get(OWN), cell["less_is_better"]
    peers = [name for name in cell["against"] if name.split()[0] in MPI]
    theirs = [cell["medians"][name] for name in peers if name in cell["medians"]]
    best = (min if less else max)(theirs, default=None)
    times = "-" if ours is None or best is None else f"{best / ours if less else ours / best:.1f}"
    return f"| {cell['name']}, {cell['unit']} | {_figure(ours)} | {_figure(best)} | {times} |"


def _line(cell: Document, libraries: list[str]) -> str:
    figures = [_figure(cell["medians"].get(name)) for name in libraries]
    verdict = {True: "yes", False: "**no**", None: ""}[cell["passed"]]
    bound = "≤" if cell["less_is_better"] else "≥"
    unit = "" if cell["against"] else f" {cell['unit']}"
    bar = "" if cell["bar"] is None else f"{bound} {cell['bar']:g}{unit}"
    words = [f"{cell['name']}, {cell['unit']}", *figures, _figure(cell["ratio"]), bar, verdict]
    return f"| {' | '.join(words)} |"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _quality(made: Document) -> str:
    """A text with the number of launches that count, and the reasons of the others."""
    kept = Counter(x["library"] for x in made["launches"] if not x["fault"])
    faults = Counter(x["fault"] for x in made["launches"] if x["fault"])
    counts = ", ".join(f"{name} {kept[name]}" for name in made["libraries"])
    text = f"Launches that count: {counts}"
    if faults:
        text += "; dropped: " + ", ".join(f"{n} ({why})" for why, n in faults.items())
    lines = [x["line_ns"] for x in made["launches"] if not x["fault"]]
    if lines:
        text += f". A cache line took {min(lines):.0f} to {max(lines):.0f} ns one way"
    if made["taken"] not in ([""], []):
        instead = "those on cores far apart" if len(made["taken"]) == 1 else "all launches"
        text += f". NOT ENOUGH of them count: these are figures of {instead}"
    return f"{text}."
