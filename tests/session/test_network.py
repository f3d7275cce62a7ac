"""Traffic on the network, read from the kernel's counters in a namespace of our own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pscompy
from tests.program import program

PACKAGES = str(Path(pscompy.__file__).parents[1])
NBYTES = 50_000_000


def carried():
    """The bytes that lo has carried."""
    with open("/proc/net/dev") as counters:
        (line,) = (line for line in counters if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def call(nbytes):
    import sys

    import pscompy

    with pscompy.Session() as session:
        c = session.connect(sys.argv[1])
        c.send(bytes(nbytes))
        c.recv()


def traffic(nbytes, caller):
    """Print the transport, and the bytes that lo carries while the program `caller` sends."""
    import subprocess
    import sys

    import pscompy

    with pscompy.Session() as session, session.listen() as sock:
        before = carried()
        peer = subprocess.Popen([sys.executable, "-c", caller, sock.address])
        c = sock.accept(timeout=60)
        assert len(c.recv(timeout=60)) == nbytes
        print(c.transport, carried() - before)
        c.send(b"")
        assert peer.wait(30) == 0


def namespace():
    """The command prefix that runs a program in a network namespace of its own, with lo up."""
    prefix = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("there is no `unshare` or no `ip` here")
    tried = subprocess.run(
        [*prefix, "ip", "link", "set", "lo", "up"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"no network namespace may be made here: {tried.stderr.strip()}")
    return [*prefix, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


@pytest.fixture(scope="module")
def isolated():
    return namespace()


def run(isolated, **environ):
    text = program(traffic, NBYTES, program(call, NBYTES), uses=[carried])
    done = subprocess.run(
        [*isolated, sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": PACKAGES, **environ},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name, counted = done.stdout.split()
    return name, int(counted)


@pytest.mark.parametrize("cma", ["0", "1"])
def test_shm_leaves_the_network_alone(isolated, cma):
    """With shm only the handshake, a few kilobytes, uses the network."""
    name, counted = run(isolated, PSP_TCP="0", PSP_SHM_CMA=cma)
    assert name == "shm"
    assert 0 < counted < 100_000


def test_tcp_uses_it(isolated):
    name, counted = run(isolated, PSP_SHM="0")
    assert name == "tcp"
    assert NBYTES < counted < 2 * NBYTES
