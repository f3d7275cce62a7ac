"""`python -m bench`: see `--help`."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path

from bench import peers, plots, results
from bench.cases import README, chosen, groups, grows
from bench.rounds import Patience, measure
from bench.rows import Group
from pscompy.cli.arguments import ArgumentParser, positive

_EPILOG = """\
Each group is measured by launches of every library in turn, in random order, between two
brackets that tell how near the cores are to each other. A group's figures replace its former
ones in the folder; the table is of all groups there, and growth.png of all of growth. PSP_
variables act as ever, and are noted.
"""


def main(arguments: list[str]) -> int:
    """Measure pscompy against its peers and the limits of this machine."""
    known = groups()
    options = _parser(known).parse_args(arguments)
    if options.quick:
        options.launches, options.seconds, options.patience, options.bound = 1, 0.02, 0.0, 0.0
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # let each library cache its compiled modules
    options.folder.mkdir(parents=True, exist_ok=True)
    for peer in {library for name in options.only for library in known[name].launches}:
        if peer in peers.PACKAGES:
            peers.environment(peer)  # installs the peer now, not during the measurement
    for name in options.only:
        patience = Patience(_near(options.folder), options.patience)
        rounds = measure(known[name], options.launches, options.seconds, patience, options.bound)
        _keep_near(options.folder, patience.near_ns)
        made = results.document(known[name], rounds, patience.near_ns)
        results.write(options.folder, made)
        plots.draw(options.folder / f"{name}.png", made["title"], [made])
        print(results.as_markdown(made), flush=True)
    if any(map(grows, options.only)):
        growth = [made for made in results.load(options.folder) if grows(made["group"])]
        plots.draw(options.folder / "growth.png", "cost against number", growth)
    if {*README} <= {*options.only}:
        print(results.readme_table(options.folder, README))
    return 0


def _parser(known: dict[str, Group]) -> ArgumentParser:
    parser = ArgumentParser(
        prog="run bench",
        description=main.__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short launch of each, to see that all work"
    )
    parser.add_argument(
        "--only",
        type=lambda text: chosen(text, known),
        default=tuple(known),
        metavar="GROUP,...",
        help=f"some of {', '.join(known)}; growth: all of growth; overlap: all of overlap;"
        " collectives: all of collectives; mpi: all of mpi; readme: the table in README.md",
    )
    parser.add_argument(
        "--launches", type=positive, default=5, help="that count, of each library [5]"
    )
    parser.add_argument("--seconds", type=float, default=0.15, help="for each figure [0.15]")
    parser.add_argument(
        "--patience", type=float, default=20, help="seconds to wait for near cores [20]"
    )
    parser.add_argument(
        "--bound",
        type=float,
        default=90,
        help="seconds after which a group begins no further round [90]",
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("bench/results"), help="for results [bench/results]"
    )
    return parser


# ---- the shortest time that a cache line has taken between two cores of this machine ----


def _near(folder: Path) -> float:
    try:
        return float(json.loads((folder / "near.json").read_text()))
    except FileNotFoundError:
        return math.inf


def _keep_near(folder: Path, ns: float) -> None:
    (folder / "near.json").write_text(json.dumps(ns))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
