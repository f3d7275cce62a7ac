"""The devices of the guest: rxe0 always exists, rxe1 is created by suites that need it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from pscompy.testing.process import BOUND

# A guest takes 0.1 ms to bring in a page, and each session pins its buffers: with the default sizes
# five MiB for each device.
FEW_BUFFERS = {"IB_SRQ_SIZE": 64, "IB_SEND_BUFFERS": 16}
ROOT = Path("/sys/class/infiniband")
DEVICES = ("rxe0", "rxe1")


def make_device(rail: int) -> None:
    """Create a device like the guest's first process has created rxe0."""
    veth, other = (f"veth{2 * rail + end}" for end in (0, 1))
    ip("link", "add", veth, "type", "veth", "peer", "name", other)
    ip("addr", "add", f"10.9.{rail}.1/24", "dev", veth)
    for name in (veth, other):
        ip("link", "set", name, "mtu", "4200", "up")
    add = f"rdma link add rxe{rail} type rxe netdev {veth}"
    subprocess.run(add.split(), check=True, timeout=BOUND)
    await_port(f"rxe{rail}", "ACTIVE")


def without_pictures(folder: Path) -> Path:
    """Make `folder` one that stands for matplotlib in PYTHONPATH, and cannot be imported: drawing
    takes a guest ten seconds. Returns it."""
    (folder / "matplotlib.py").write_text("raise ImportError\n")
    return folder


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=BOUND)


def await_port(device: str, state: str) -> None:
    port = ROOT / device / "ports/1/state"
    deadline = time.monotonic() + BOUND
    while not port.exists() or state not in port.read_text():
        assert time.monotonic() < deadline, f"{device} does not become {state}"
        time.sleep(0.01)


def set_port(rail: int, state: str) -> None:
    """Set the port's state; returns when its driver reports the state."""
    ip("link", "set", f"veth{2 * rail}", state)
    await_port(f"rxe{rail}", "ACTIVE" if state == "up" else "DOWN")
