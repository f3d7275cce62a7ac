"""Several rails of tcp, or of portals over its interface in software: two network namespaces that
are joined by links of known rates (veth pairs, shaped by tbf), far below what the cores can move.
Needs root."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.native import NotMeasured
from bench.rows import OWN, Cell, Figures, Group, K, M

G = 1 << 30
RATE, FAST = 200, 4000  # Mbit/s of a link; of one that carries messages of GiB
UNEQUAL = (100, 200, 400)
QUARTER = (RATE, RATE / 4)  # the second one gives a quarter of what tcp expects of it
NUMBERS = (1, 2, 3, 4)  # rails of figure 9
LONG = 64 * M
SIZES = (8, K, 16 * K, 128 * K, 512 * K, 2 * M, 8 * M, LONG)
SMALL = 8
SMALL_SECONDS = 0.5  # at least, of round trips of 8 bytes
TIMEOUT = 900


class Links:
    """Two namespaces and the links between them: 10.77.I.1 and 10.77.I.2 on link I."""

    def __init__(self) -> None:
        self.names = [f"psc{os.getpid()}r{end}" for end in (1, 2)]
        self.key = f"random:{secrets.token_hex(32)}"

    def open(self, rates: Sequence[float]) -> None:
        for name in self.names:
            _ip("netns", "add", name)
        here, there = self.names
        for i, rate in enumerate(rates):
            _ip("-n", here, "link", "add", f"rail{i}", "type", "veth", "peer", "name", f"rail{i}",
                "netns", there)  # fmt: skip
            for host, name in enumerate(self.names, 1):
                _ip("-n", name, "addr", "add", f"10.77.{i}.{host}/24", "dev", f"rail{i}")
                _ip("-n", name, "link", "set", f"rail{i}", "up")
                self._shape(name, f"rail{i}", rate)

    def _shape(self, name: str, device: str, rate: float) -> None:
        burst = max(64, rate / 8)  # KiB: 1 ms
        limits = f"tbf rate {rate}mbit burst {burst:.0f}k latency 50ms"
        _ip("netns", "exec", name, *f"tc qdisc add dev {device} root {limits}".split())

    def close(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def start(self, end: int, fabric: str, rails: int, *arguments: object) -> subprocess.Popen[str]:
        """Start rails_end.py in one of the namespaces, with the first `rails` rails."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PSP_")}
        own = {"PSP_KEY": self.key, "PSP_SHM": "0", f"PSP_{fabric.upper()}": "9"}
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[end], sys.executable, "-m", "bench.rails_end",
             *map(str, arguments)],
            cwd=Path(__file__).parents[1],
            env=kept | own | dict([_rails(fabric, end, rails)]),
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip


def _rails(fabric: str, end: int, number: int) -> tuple[str, str]:
    """The variable that names the rails of one end, and its value."""
    if fabric == "portals":
        return "PSP_PORTALS_INTERFACE", ",".join(f"10.77.{i}.{end + 1}" for i in range(number))
    return "PSP_TCP_RAILS", ",".join(f"10.77.{i}.0/24" for i in range(number))


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasured(f"ip {' '.join(words)}: {done.stderr.strip()}")


@contextmanager
def links(rates: Sequence[float]) -> Iterator[Links]:
    if shutil.which("ip") is None:
        raise NotMeasured("there is no `ip`")
    made = Links()
    try:
        made.open(rates)
        yield made
    finally:
        made.close()


def one_way(
    rates: Sequence[float], seconds: float, sizes: Sequence[int], fabric: str = "tcp"
) -> dict[int, float]:
    """The seconds of a message of each size one way, over links of these rates in Mbit/s."""
    with links(rates) as made:
        server = made.start(1, fabric, len(rates), "serve", "10.77.0.2")
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        client = made.start(0, fabric, len(rates), "call", address, seconds, *sizes)
        try:
            out, _ = client.communicate(timeout=TIMEOUT)
            server.communicate(timeout=TIMEOUT)
        finally:
            for process in (client, server):
                process.kill()
                process.wait()
    if client.returncode:
        raise NotMeasured(f"rails_end.py failed over {len(rates)} rails")
    told = json.loads(out)
    assert told["lanes"] == len(rates), told
    return {int(size): taken for size, taken in told["seconds"].items()}


def rate(rates: Sequence[float], seconds: float, size: int, fabric: str = "tcp") -> float:
    """MB/s of messages of this size."""
    return size / one_way(rates, seconds, [size], fabric)[size] / 1e6


# ---- figure 9 -----------------------------------------------------------------------------------


def _label(size: int) -> str:
    for unit, name in ((G, "GiB"), (M, "MiB"), (K, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def _line(number: int, fabric: str, seconds: float) -> Figures:
    taken = one_way([RATE] * number, seconds, SIZES, fabric)
    return {_label(size): size / each / 1e6 for size, each in taken.items()}


# ---- the table ----------------------------------------------------------------------------------

EFFICIENCY = "4 rails, 64 MiB, of 4 times one rail"
THREE = "3 rails of 2 rails, 256 MiB"
SUM = "rails 1 : 2 : 4, 64 MiB, of their sum"
SLOW = "a rail that gives a quarter, 64 MiB, of the sum"
DIPS = {
    (rails, size): f"{_label(size)} of 256 MiB, rails: {rails}"
    for rails in (1, 2)
    for size in (2 * G, 4 * G)
}
LATENCY = "8 B, 4 rails of one"
FULL = 0.1  # seconds; shorter launches leave out the messages of GiB, which take a minute


def _table(fabric: str, seconds: float) -> Figures:
    of = partial(rate, seconds=seconds, fabric=fabric)
    alone = {it: of([it], size=LONG) for it in {RATE, *UNEQUAL, *QUARTER}}
    figures = {
        EFFICIENCY: of([RATE] * 4, size=LONG) / (4 * alone[RATE]),
        THREE: of([RATE] * 3, size=256 * M) / of([RATE] * 2, size=256 * M),
        SUM: of(UNEQUAL, size=LONG) / sum(alone[it] for it in UNEQUAL),
        SLOW: of(QUARTER, size=LONG) / sum(alone[it] for it in QUARTER),
        LATENCY: _small(4, fabric, seconds) / _small(1, fabric, seconds),
    }
    return figures | (_dips(seconds) if seconds >= FULL and fabric == "tcp" else {})


def _small(number: int, fabric: str, seconds: float) -> float:
    return one_way([FAST] * number, max(seconds, SMALL_SECONDS), [SMALL], fabric)[SMALL]


def _dips(seconds: float) -> Figures:
    figures = {}
    for number in (1, 2):
        taken = one_way([FAST] * number, seconds, [256 * M, 2 * G, 4 * G])
        for size in (2 * G, 4 * G):
            ratio = (size / taken[size]) / (256 * M / taken[256 * M])
            figures[DIPS[number, size]] = ratio
    return figures


def groups() -> tuple[Group, Group]:
    return _group("rails", "tcp"), _group("rails-portals", "portals")


def _group(name: str, fabric: str) -> Group:
    dips = DIPS.values() if fabric == "tcp" else ()
    ratio = "of/s"  # more is better
    cells = (
        Cell(EFFICIENCY, ratio, 0.95, ()),
        Cell(THREE, ratio, 1.45, ()),
        Cell(SUM, ratio, 0.93, ()),
        Cell(SLOW, ratio, 0.90, ()),
        *(Cell(it, ratio, 0.98, ()) for it in dips),
        Cell(LATENCY, "times", 1.05, ()),
        *(Cell(_label(size), "MB/s", size=size) for size in SIZES),
    )
    lines = {f"{n} rail{'s' * (n > 1)}": partial(_line, n, fabric) for n in NUMBERS}
    title = f"{fabric}: rails of {RATE} Mbit/s"
    return Group(name, title, cells, {OWN: partial(_table, fabric), **lines})
