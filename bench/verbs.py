"""ib against verbs without a library: `python -m bench.verbs`, where there is an RDMA device.

Messages of the C program beside this file, of Debian's ibv_rc_pingpong and of pscompy, in turns
within one run; the median of the rounds, and ratios. Both sides of a bandwidth have windows of 64.
In a User Mode Linux guest, pin the guest to one processor (`taskset -c 1`): its kernel and its
programs are processes of the host, and where each of them runs makes more of a difference than
what is measured.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import sleep

_SOURCE = Path(__file__).with_name("verbs.c")
SMALL = (8, 64, 256, 1024)
LARGE = (256 << 10, 1 << 20, 4 << 20)
ROUNDS, TRIPS, STREAM_BYTES = 5, 2000, 64 << 20
_SECONDS = 120.0


def output(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


def built(folder: Path) -> Path:
    program = folder / "verbs"
    output("gcc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", program, _SOURCE, "-libverbs")
    return program


def latency(program: Path, size: int) -> float:
    """The latency one way, in microseconds."""
    return float(output(program, "latency", str(size), str(TRIPS))) * 1e6 / TRIPS / 2


def bandwidth(program: Path, size: int) -> float:
    """The bandwidth, in millions of bytes per second."""
    count = max(1, STREAM_BYTES // size)
    return size * count / float(output(program, "stream", str(size), str(count))) / 1e6


def pingpong() -> float | None:
    """The latency of 8 bytes one way with events, in microseconds. None if ibv_rc_pingpong or a GID
    is missing."""
    program = shutil.which("ibv_rc_pingpong")
    gid = re.search(r"GID\[\s*(\d+)\]:\s*::ffff:", output("ibv_devinfo", "-v"))
    if not program or not gid:
        return None
    command = [program, "-e", "-g", gid[1], "-s", "8", "-n", str(TRIPS)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        sleep(0.3)  # ibv_rc_pingpong does not report when it listens
        found = re.search(r"([\d.]+) usec/iter", output(*command, "localhost"))
        server.wait(_SECONDS)
    return float(found[1]) / 2 if found else None


def pscompy() -> dict[int, tuple[float, float]]:
    """Size -> (latency one way in microseconds, bandwidth in millions of bytes per second)."""
    sizes = ",".join(map(str, SMALL + LARGE))
    command = [sys.executable, "-m", "pscompy", "perf", "--transport", "ib", "--json"]
    command += [
        "--sizes",
        sizes,
        "--only",
        "latency,bandwidth",
        "--seconds",
        "0.1",
        "--window",
        "64",
    ]
    results = json.loads(output(*command))["results"]
    return {it["size"]: (it["one_way_us"], it["megabytes_per_second"]) for it in results}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = built(Path(folder))
        ours, theirs, debian = [], [], []
        for _ in range(ROUNDS):
            theirs.append(
                {size: latency(program, size) for size in SMALL}
                | {size: bandwidth(program, size) for size in LARGE}
            )
            debian.append(pingpong())
            ours.append(pscompy())
    raw = {size: median(round_[size] for round_ in theirs) for size in SMALL + LARGE}
    if None not in debian:
        events = median(it for it in debian if it is not None)
        print(f"8 bytes, one way: ibv_rc_pingpong -e {events:.1f} us, verbs.c {raw[8]:.1f} us")
    for size in SMALL:
        us = median(round_[size][0] for round_ in ours)
        print(f"{size:8} bytes {us:8.1f} us one way, verbs {raw[size]:.1f}: {us / raw[size]:.2f} x")
    for size in LARGE:
        rate = median(round_[size][1] for round_ in ours)
        print(f"{size:8} bytes {rate:8.0f} MB/s, verbs {raw[size]:.0f}: {rate / raw[size]:.2f} x")


if __name__ == "__main__":
    main()
