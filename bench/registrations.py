"""What registering memory for each message costs: `python -m bench.registrations`, where there is
an RDMA device.

Arrays go there and back over ib, from memory of the pool (RMA chunks, in HPX's words) and from
memory that is registered for each message anew, in turns within the same processes; the best of
the turns as a table, and as a plot beside the 40 % that Biddiscombe et al. found with two threads
("Zero copy serialization using RMA in the HPX distributed task-based runtime", figure 5).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from bench import objects, peers
from bench.verbs import output
from pscompy import Communicator, World
from pscompy.cli import plot
from pscompy.cli.sizes import with_unit
from pscompy.errors import Unsupported

POOL, EACH = "RMA chunks", "registered for each message"
PAPER = f"{EACH}, and 40 %"
WAYS = {POOL: objects.registered, EACH: objects.plain}
SIZES = tuple(1 << power for power in range(14, 23))  # 16 KiB to 4 MiB
TURN_BYTES, ROUND_TRIPS = 2 << 20, 2  # least bytes and round trips of a turn
THREADS = (1, 2)
Found = dict[str, Any]  # way -> {"rates": bytes -> MB/s, "registrations": of a message}


# ---- a rank ----


def rank(threads: int, turns: int) -> None:
    """Measure as one rank; rank 0 prints the results as JSON."""
    with World() as world:
        comms: list[Communicator] = [world, *(world.dup() for _ in range(threads - 1))]
        found: Found = {way: {"rates": dict.fromkeys(SIZES, 0.0), "count": 0} for way in WAYS}
        for _ in range(turns):
            for size in SIZES:
                for way in WAYS:
                    turn(comms, way, size, found[way])
    for way in found.values():
        way["registrations"] = way.pop("count") / turns / threads / sum(map(round_trips, SIZES))
    if world.rank == 0:
        os.write(1, json.dumps(found).encode())


def turn(comms: list[Communicator], way: str, size: int, found: Found) -> None:
    count, connection = round_trips(size), comms[0][1 - comms[0].rank]
    before = connection.stats["registrations"]
    seconds = objects.exchanged(comms, WAYS[way], size, count)
    rate = 2 * count * len(comms) * size / seconds / 1e6
    found["rates"][size] = max(rate, found["rates"][size])
    found["count"] += connection.stats["registrations"] - before


def round_trips(size: int) -> int:
    return max(ROUND_TRIPS, TURN_BYTES // size // 2)


# ---- both ranks ----


def measured(threads: int, turns: int) -> Found:
    start = peers.pscompy(2, "ib")
    only = ["PSP_SHM=0", "PSP_TCP=0", "PSP_IB_MCACHE_SIZE=0", f"PYTHONPATH={peers.ROOT}"]
    program = ["-m", "bench.registrations", "--rank", str(threads), "--turns", str(turns)]
    found: Found = json.loads(output("env", *only, *start.command, *program))
    for way in found.values():
        way["rates"] = {int(size): rate for size, rate in way["rates"].items()}
    return found


def report(threads: int, found: Found) -> None:
    print(f"\nthere and back over ib, {threads} thread{'s' * (threads > 1)} a side, MB/s")
    print(f"{'bytes':>8}" + "".join(f"{way:>30}" for way in WAYS) + "    gain")
    gains = []
    for size in SIZES:
        rates = [found[way]["rates"][size] for way in WAYS]
        gains.append(rates[0] / rates[1])
        figures = "".join(f"{rate:30.0f}" for rate in rates)
        print(f"{with_unit(size):>8}{figures}{gains[-1] - 1:8.0%}")
    counts = "".join(f"{found[way]['registrations']:30.2f}" for way in WAYS)
    print(f"registered{counts[2:]} times a message")
    mean = geometric_mean(gains) - 1
    print(f"on average {mean:.0%} faster; the paper: 40 % with 2 threads", flush=True)


def panel(threads: int, found: Found) -> plot.Panel:
    lines = {way: found[way]["rates"] for way in WAYS}
    lines[PAPER] = {size: 1.4 * rate for size, rate in lines[EACH].items()}
    return plot.Panel(f"MB/s, {threads} thread{'s' * (threads > 1)} a side", lines, (PAPER,))


def draw(path: Path, found: dict[int, Found]) -> None:
    try:
        plot.check()
    except Unsupported as error:
        sys.exit(f"no plot: {error}")
    path.parent.mkdir(parents=True, exist_ok=True)
    title = "arrays there and back over ib"
    plot.draw(path, title, [panel(threads, figures) for threads, figures in found.items()])
    print(f"wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.registrations", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, default=20, help="of each way with each size [20]")
    parser.add_argument("--out", type=Path, default=Path("bench/results/registrations.png"))
    options = parser.parse_args()
    if options.rank:
        rank(options.rank, options.turns)
        return
    found = {threads: measured(threads, options.turns) for threads in THREADS}
    for threads, figures in found.items():
        report(threads, figures)
    draw(options.out, found)


if __name__ == "__main__":
    main()
