"""Gateways beside a TCP relay that others wrote, and over links of a known rate.

    python -m bench.gateways

Needs root, for network namespaces as the tests make them, and haproxy for the comparison. One
process in each of two modules; rounds of the gateway and of the relay take turns within one run.
"""

from __future__ import annotations

import importlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROUNDS = 5
RELAY_PORT, SERVER_PORT = 7000, 7001
RATE = 200  # Mbit/s of a limited link

PAIR = """\
import sys, time, pscompy
size, count, turns = map(int, sys.argv[1:])
with pscompy.World() as world:
    other, small = 1 - world.rank, bytearray(8)
    buffers = [bytearray(size) for _ in range(count)]
    def latency():
        begun = time.perf_counter()
        for _ in range(turns):
            if world.rank:
                world.recv(small, source=other)
            world.send(small, dest=other)
            if not world.rank:
                world.recv(small, source=other)
        return (time.perf_counter() - begun) / turns / 2 * 1e6
    def bandwidth():
        begun = time.perf_counter()
        if world.rank:
            pscompy.wait_all([world.irecv(it, source=other) for it in buffers])
            world.send(small, dest=other)
        else:
            pscompy.wait_all([world.isend(it, dest=other) for it in buffers])
            world.recv(small, source=other)
        return size * count / (time.perf_counter() - begun) / 1e6
    figures = [min(latency() for _ in range(3)), max(bandwidth() for _ in range(3))]
    if not world.rank:
        print(*figures)
"""

SOCKETS = """\
import socket, sys, time
serve, host = sys.argv[1] == "serve", sys.argv[2]
port, size, count, turns = map(int, sys.argv[3:])
room = memoryview(bytearray(1 << 20))
def take(sock, n):
    while n:
        n -= sock.recv_into(room[: min(n, 1 << 20)])
if serve:
    listening = socket.create_server((host, port))
    print("listening", flush=True)
    sock, _ = listening.accept()
else:
    sock = socket.create_connection((host, port))
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
data = bytes(size)
def latency():
    begun = time.perf_counter()
    for _ in range(turns):
        if serve:
            take(sock, 8)
        sock.sendall(b"12345678")
        if not serve:
            take(sock, 8)
    return (time.perf_counter() - begun) / turns / 2 * 1e6
def bandwidth():
    begun = time.perf_counter()
    if serve:
        take(sock, size * count)
        sock.sendall(b"x" * 8)
    else:
        for _ in range(count):
            sock.sendall(data)
        take(sock, 8)
    return size * count / (time.perf_counter() - begun) / 1e6
figures = [min(latency() for _ in range(3)), max(bandwidth() for _ in range(3))]
if not serve:
    print(*figures)
"""

RELAY = """\
defaults
 mode tcp
 timeout connect 5s
 timeout client 60s
 timeout server 60s
listen relay
 bind 10.1.1.9:{relay}
 server there 10.2.1.1:{server}
"""

Figures = tuple[float, float]  # us, MB/s


def main() -> int:
    sys.path.insert(0, str(ROOT / "tests/gateway"))
    namespaces = importlib.import_module("namespaces")
    if reason := namespaces.why_no_namespaces():
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        for gateways in (1, 2, 4):
            limited(namespaces, Path(folder), gateways)
        beside_relay(namespaces, Path(folder))
    return 0


def gateway_round(names: Any, machine: Any, folder: Path, *numbers: int) -> Figures:
    program = folder / "pair.py"
    program.write_text(PAIR)
    second = machine.ranks(2, 1, program, *numbers)
    out, _ = names.finished(machine.ranks(1, 1, program, *numbers))
    names.finished(second)
    latency, bandwidth = map(float, out.split())
    return latency, bandwidth


def relay_round(names: Any, machine: Any, folder: Path, *numbers: int) -> Figures:
    program = folder / "sockets.py"
    program.write_text(SOCKETS)
    server = machine.python(2, program, "serve", "10.2.1.1", SERVER_PORT, *numbers)
    server.stdout.readline()
    client = machine.python(1, program, "call", "10.1.1.9", RELAY_PORT, *numbers)
    out, _ = names.finished(client)
    names.finished(server)
    latency, bandwidth = map(float, out.split())
    return latency, bandwidth


def limited(names: Any, folder: Path, gateways: int) -> None:
    machine = names.Machine(2, gateways)
    try:
        machine.open()
        machine.limit(f"{RATE}mbit")
        for number in machine.gateways:
            machine.start_gateway(number)
        _, bandwidth = gateway_round(names, machine, folder, 2_000_000, 8 * gateways, 10)
    finally:
        machine.close()
    total = gateways * RATE / 8
    print(
        f"{gateways} gateways at {RATE} Mbit/s: {bandwidth:.1f} MB/s,"
        f" {bandwidth / total:.2f} of the links",
        flush=True,
    )


def beside_relay(names: Any, folder: Path) -> None:
    found = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if found is None:
        print("no relay to compare with: apt-get install haproxy")
        return
    settings = folder / "haproxy.cfg"
    settings.write_text(RELAY.format(relay=RELAY_PORT, server=SERVER_PORT))
    machine = names.Machine(2, 1)
    rounds: list[tuple[Figures, Figures]] = []
    numbers = (4 << 20, 32, 500)
    try:
        machine.open()
        machine.start_gateway(1)
        machine.start(machine.gateway(1), found, "-db", "-f", settings)
        for _ in range(ROUNDS):
            ours = gateway_round(names, machine, folder, *numbers)
            rounds.append((ours, relay_round(names, machine, folder, *numbers)))
    except subprocess.SubprocessError as error:
        print(f"no comparison: {error}")
        return
    finally:
        machine.close()
    for index, unit in enumerate(("us, 8 B one way", "MB/s, 4 MiB")):
        here = statistics.median(ours[index] for ours, _ in rounds)
        relay = statistics.median(theirs[index] for _, theirs in rounds)
        print(f"{unit}: gateway {here:.1f}, relay {relay:.1f}, ratio {here / relay:.2f}")


if __name__ == "__main__":
    sys.exit(main())
