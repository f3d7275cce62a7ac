"""Gateways: their rate over links of a known rate, in comparison with a TCP relay (haproxy), with
a receiver that has stopped, and how several gateways share the traffic of all ranks to all.

    python -m bench.gateways [--only PART ...] [--launches N]

Needs root, for network namespaces as the tests make them, and haproxy for the comparison. The
programs that are compared run alternately; figures are medians over launches.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "bench/gateways_rank.py"
RELAY_PORT, SERVER_PORT = 7000, 7001
HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/sbin:/bin")
# The relay closes it again: no server is there yet.
KNOCK = "import socket; socket.create_connection(('10.1.1.9', {})).recv(1)"
RATE = 200  # Mbit/s of a limited link
PAIR = (4 << 20, 32, 500)  # bytes, messages, turns
COST_SIZE, COST_COUNT = 4 << 20, 40  # bytes, messages
COST_ROUNDS = 3  # of gateways_rank.py
STALLED = (1 << 20, 48, 4)  # bytes, messages, rounds; the first does not count
ALL_TO_ALL = ((3000, 20), (300_000, 3))  # bytes, rounds

RELAY = """\
defaults
 mode tcp
 retries 0
 timeout connect 5s
 timeout client 60s
 timeout server 60s
listen relay
 bind 10.1.1.9:{relay}
 server there 10.2.1.1:{server}
"""

Figures = tuple[float, ...]


class Ground:
    """The machine on which a part is measured: modules and gateways in network namespaces."""

    def __init__(self, names: Any, machine: Any) -> None:
        self._names = names
        self.machine = machine

    def launch(self, ranks: int, program: str, *numbers: object) -> list[Figures]:
        """Run a program on the ranks of both modules; returns the figures that they print."""
        jobs = [self.machine.ranks(it, ranks, PROGRAMS, program, *numbers) for it in (2, 1)]
        outs = [self._names.finished(job)[0] for job in jobs]
        return [tuple(map(float, out.split())) for out in outs if out]

    def relayed(self, *numbers: object) -> Figures:
        """Run sockets through the TCP relay."""
        server = self.machine.python(2, PROGRAMS, "serve", "10.2.1.1", SERVER_PORT, *numbers)
        server.stdout.readline()
        client = self.machine.python(1, PROGRAMS, "call", "10.1.1.9", RELAY_PORT, *numbers)
        out, _ = self._names.finished(client)
        self._names.finished(server)
        return tuple(map(float, out.split()))

    def carried(self) -> list[int]:
        """The bytes that each gateway has forwarded."""
        told = (self.machine.status(number) for number in self.machine.gateways)
        return [status["counters"]["bytes"] for status in told]


@contextmanager
def ground(gateways: int, rate: str = "", *, started: bool = True) -> Iterator[Ground]:
    names = importlib.import_module("namespaces")
    machine = names.Machine(2, gateways)
    try:
        machine.open()
        if rate:
            machine.limit(rate)
        for number in machine.gateways if started else ():
            machine.start_gateway(number)
        yield Ground(names, machine)
    finally:
        machine.close()


def median(figures: list[Figures], index: int) -> float:
    return statistics.median(it[index] for it in figures)


# ---- the parts -----------------------------------------------------------------


def links(launches: int) -> None:
    """Large messages over 1, 2 and 4 gateways, each with a link of a known rate to each module."""
    for gateways in (1, 2, 4):
        with ground(gateways, f"{RATE}mbit") as here:
            (figures,) = here.launch(1, "pair", 2_000_000, 8 * gateways, 10)
        total = gateways * RATE / 8
        print(
            f"{gateways} gateways at {RATE} Mbit/s: {figures[1]:.1f} MB/s,"
            f" {figures[1] / total:.2f} of the links",
            flush=True,
        )


@contextmanager
def relay_beside(here: Ground, *prefix: object) -> Iterator[subprocess.Popen[str]]:
    """haproxy as a relay of TCP in the namespace of the gateway."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "haproxy.cfg")
        settings.write_text(RELAY.format(relay=RELAY_PORT, server=SERVER_PORT))
        words = (*prefix, HAPROXY, "-db", "-f", settings)
        process = here.machine.start(here.machine.gateway(1), *words)
        while here.machine.python(1, "-c", KNOCK.format(RELAY_PORT)).wait():
            assert process.poll() is None, process.stderr.read()
        yield process


def relay(launches: int) -> None:
    """Two processes over a gateway, and over haproxy between the same namespaces."""
    if HAPROXY is None:
        print("no relay to compare with: apt-get install haproxy")
        return
    ours, theirs = [], []
    with ground(1) as here, relay_beside(here):
        for _ in range(launches):
            ours += here.launch(1, "pair", *PAIR)
            theirs.append(here.relayed(*PAIR))
    for index, unit in enumerate(("us, 8 B one way", "MB/s, 4 MiB")):
        here_, there = median(ours, index), median(theirs, index)
        print(f"{unit}: gateway {here_:.1f}, relay {there:.1f}, ratio {here_ / there:.2f}")


# ---- what 64 KiB of a stream cost the gateway and haproxy ----


def processor_ns(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1e9


def system_calls(pid: int, job: Callable[[], object]) -> int:
    """How many system calls the process makes while the job runs."""
    with tempfile.NamedTemporaryFile("r") as out:
        command = ["strace", "-f", "-c", "-o", out.name, "-p", str(pid)]
        tracing = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert tracing.stderr is not None
        assert "attached" in tracing.stderr.readline()
        job()
        tracing.send_signal(signal.SIGINT)
        tracing.communicate()
        totals = [line.split() for line in out.read().splitlines() if line.endswith(" total")]
    return int(totals[0][3])


def instructions(
    start: Callable[..., AbstractContextManager[subprocess.Popen[str]]],
    job: Callable[[int], object],
) -> float:
    """The difference between a long and a short stream, in instructions of user code."""
    sums = []
    for count in (COST_COUNT // 4, COST_COUNT):
        with tempfile.NamedTemporaryFile("r") as out:
            traced = f"--callgrind-out-file={out.name}"
            with start("valgrind", "--tool=callgrind", traced) as process:
                job(count)
                process.send_signal(signal.SIGTERM)
                process.communicate()
            sums += re.findall(r"^(?:summary|totals): (\d+)", out.read(), re.MULTILINE)[-1:]
    return (int(sums[1]) - int(sums[0])) / (1 - 1 / 4)


def costs(launches: int) -> None:
    """What 64 KiB of a stream cost the gateway and haproxy."""
    if HAPROXY is None or not shutil.which("strace") or not shutil.which("valgrind"):
        print("needs haproxy, strace and valgrind")
        return

    @contextmanager
    def gateway(*prefix: object) -> Iterator[subprocess.Popen[str]]:
        process = here.machine.start_gateway(1, prefix=prefix)
        yield process
        process.terminate()
        process.communicate()

    units = COST_ROUNDS * COST_COUNT * COST_SIZE / (64 << 10)
    with ground(1, started=False) as here:
        ways: tuple[tuple[str, Any, Callable[[int], object]], ...] = (
            ("gateway", gateway, lambda count: here.launch(1, "pair", COST_SIZE, count, 1)),
            ("haproxy", partial(relay_beside, here), lambda n: here.relayed(COST_SIZE, n, 1)),
        )
        for name, start, job in ways:
            with start() as process:
                before = processor_ns(process.pid)
                job(COST_COUNT)
                spent = processor_ns(process.pid) - before
                calls = system_calls(process.pid, partial(job, COST_COUNT))
                process.terminate()
                process.wait()
            print(
                f"{name}, each 64 KiB: {spent / units / 1e3:.1f} us of a processor,"
                f" {calls / units:.1f} system calls,"
                f" {instructions(start, job) / units:.0f} instructions of its own",
                flush=True,
            )


def stalled(launches: int) -> None:
    """The rates of other streams while a receiver is stopped, compared with those otherwise."""
    figures: list[Figures] = []
    with ground(1) as here:
        for _ in range(launches):
            figures += here.launch(2, "stalled", *STALLED)
        told = here.machine.status(1)["counters"]
    for index, who in enumerate(("the same sender", "another sender")):
        without, beside = median(figures, index), median(figures, index + 2)
        print(
            f"a receiver has stopped, a stream of {who}: {beside:.0f} MB/s, without it"
            f" {without:.0f}, ratio {beside / without:.2f}"
        )
    print(f"the gateway held {told['held_most'] / 1e6:.1f} MB at most")


def all_to_all(launches: int) -> None:
    """The shares of 4 gateways in the traffic of 8 + 8 ranks that all send to each other."""
    for size, rounds in ALL_TO_ALL:
        with ground(4) as here:
            here.launch(8, "all", size, rounds)
            carried = here.carried()
        ratio = max(carried) / statistics.mean(carried)
        print(f"8 + 8 to all over 4 gateways, {size} B: busiest {ratio:.2f} of the mean")


PARTS: dict[str, Callable[[int], None]] = {
    "links": links,
    "relay": relay,
    "costs": costs,
    "stalled": stalled,
    "all-to-all": all_to_all,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gateways", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--launches", type=int, default=5)
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT / "tests/gateway"))
    if reason := importlib.import_module("namespaces").why_no_namespaces():
        print(reason, file=sys.stderr)
        return 1
    for name in options.only:
        PARTS[name](options.launches)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
