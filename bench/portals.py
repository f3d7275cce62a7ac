"""portals over the software NI against that NI without a library: `python -m bench.portals`.

Puts by the C program beside this file, messages of pscompy, and a TCP loopback socket that both
sides poll are measured in turn within one run, so that a temporary load of the machine affects all
of them. The results are medians of the rounds and of their ratios. All use the same two cores.
Windows have 64 messages on both sides, all of them from one buffer to one buffer.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench import peers
from bench.native import FOLDER, cores
from bench.verbs import output
from pscompy import World
from pscompy.cli.measure import LATENCY, STREAM, Job
from pscompy.cli.perf_pair import OwnPair, serve
from pscompy.cli.sampling import Pair, Sample, sample

SMALL = (8, 64, 256, 1 << 10)
LARGE = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
WINDOW = 64
SECONDS = 0.5
_PROGRAM = FOLDER / "portals"
_NI = ("softni/pscompy_softni", "bench/portals.c")


@dataclass
class Program:
    """The C program as a pair; its two processes are started anew for each job."""

    name: str
    tests: tuple[str, ...] = (LATENCY, STREAM)

    def run(self, job: Job) -> float:
        test = job.test if self.name == "puts" else self.name
        first, second = cores()
        return float(output(_PROGRAM, test, *map(str, (first, second, job.size, job.count))))


PUTS, TCP = Program("puts"), Program("sockets", (LATENCY,))


def build() -> None:
    folder, source = (peers.ROOT / path for path in _NI)
    FOLDER.mkdir(exist_ok=True)
    options = ["-std=c11", "-D_GNU_SOURCE", "-O3", f"-I{peers.ROOT}", "-pthread"]
    output("gcc", *options, "-o", _PROGRAM, source, *sorted(folder.glob("*.c")))


# ---- rank 0 measures; rank 1 is the passive side ----


def rank() -> None:
    with World() as world:
        os.sched_setaffinity(0, {cores()[world.rank]})
        connection = world[1 - world.rank]
        connection.open()
        if connection.transport != "portals":
            sys.exit(f"connected over {connection.transport}")
        if world.rank:
            serve(connection)
            return
        own = OwnPair(connection)
        latencies(own)
        bandwidths(own)
        own.close()


def taken(pairs: Sequence[Pair], job: Job) -> list[Sample]:
    return list(sample(pairs, job, SECONDS).values())


def slower(one: Sample, other: Sample) -> float:
    """The time per message of `one` divided by that of `other`, as the median of the rounds."""
    rounds = zip(one.rounds, other.rounds, strict=True)
    each = one.job.messages / other.job.messages
    return statistics.median(mine / theirs for mine, theirs in rounds) / each


def latencies(own: OwnPair) -> None:
    taken([own, PUTS, TCP], Job(LATENCY, SMALL[0], 1, 1))  # warms up the cores
    print("microseconds one way; x puts; puts x sockets")
    for size in SMALL + LARGE:
        job = Job(LATENCY, size, 1, 1)
        ours, puts, tcp = taken([own, PUTS, TCP], job)
        print(f"{size:8} bytes {ours.one_way_us:8.2f}, puts {puts.one_way_us:8.2f},", end=" ")
        print(f"sockets {tcp.one_way_us:8.2f}:", end=" ")
        print(f"{slower(ours, puts):.2f} x, {slower(puts, tcp):.2f} x", flush=True)


def bandwidths(own: OwnPair) -> None:
    print(f"MB/s in windows of {WINDOW}; x puts")
    for size in LARGE:
        job = Job(STREAM, size, 1, WINDOW)
        ours, puts = taken([own, PUTS], job)
        print(f"{size:8} bytes {ours.megabytes_per_second:8.0f},", end=" ")
        print(f"puts {puts.megabytes_per_second:8.0f}: {slower(puts, ours):.2f} x", flush=True)


def main() -> None:
    build()
    start = peers.pscompy(2, "portals")
    only = {"PSP_SHM": "0", "PSP_TCP": "0", **start.environment}
    sys.exit(subprocess.run([*start.command, "-m", "bench.portals", "--rank"], env=only).returncode)


if __name__ == "__main__":
    rank() if sys.argv[1:] == ["--rank"] else main()
