"""A rank that uses connections for the first time: FOLDER LIBRARY, or FOLDER pscompy one.

All ranks exchange a message with all others; with `one`, only rank 0 exchanges one with each.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from bench.alltoall import LIBRARIES, Ranks


def _exchange(ranks: Ranks, others: range) -> float:
    """The seconds until a message has come from and gone to each of the others."""
    outgoing, incoming = np.ones((2, ranks.size, 8), np.uint8)
    ranks.barrier()
    start = time.perf_counter()
    peers = [rank for rank in others if rank != ranks.rank]
    requests = [ranks.irecv(incoming[rank], rank, 0) for rank in peers]
    requests += [ranks.isend(outgoing[rank], rank, 0) for rank in peers]
    ranks.wait_all(requests)
    return time.perf_counter() - start


def main(folder: str, library: str, which: str = "all") -> None:
    with LIBRARIES[library]() as ranks:
        others = range(ranks.size) if which == "all" or ranks.rank == 0 else range(1)
        seconds = _exchange(ranks, others)
        ranks.barrier()  # a file would delay the ranks that still connect
        (Path(folder) / f"{ranks.rank:03}").write_text(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
