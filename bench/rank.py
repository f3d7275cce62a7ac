"""One process of a library, which measures a case of bench/cases.py.

`python -m bench.rank CASE LIBRARY FOLDER [ROLE [SECONDS [ARGUMENT ...]]]` is started by the
library's own launcher, or with a role by bench/launches.py. CASE is a function as MODULE:NAME. It
gets the library, the seconds and the arguments; what it returns is written as JSON, into a file of
this rank in the folder. The case JOBS runs the jobs of a Contender: loops of bench/loops.py.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from pkgutil import resolve_name

from bench.libraries import LIBRARIES
from bench.native import pin
from pscompy.cli.contender import serve

JOBS = "jobs"
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")  # variables in which launchers pass the rank


def main(
    case: str, library: str, folder: str, role: str = "", seconds: str = "0", *arguments: str
) -> None:
    rank = int(role or next((os.environ[name] for name in _RANKS if name in os.environ), 0))
    if case == JOBS:
        _run_jobs(library, Path(folder), rank)
        return
    with LIBRARIES[library](Path(folder), rank) as opened:
        figures = resolve_name(case)(opened, float(seconds), *arguments)
        if figures is not None:
            (Path(folder) / f"{rank:03}").write_text(json.dumps(figures))


def _run_jobs(library: str, folder: Path, rank: int) -> None:
    """The process is pinned to a core before it loads the library, for all libraries alike."""
    from bench.loops import LOOPS

    pin(rank)
    with LIBRARIES[library](folder, rank) as opened:
        serve(opened, folder, LOOPS)


if __name__ == "__main__":
    main(*sys.argv[1:])
