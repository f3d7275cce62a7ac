"""What several suites need that run inside the guest."""

from __future__ import annotations

import subprocess

import pytest

from tests.ib.devices import ROOT, await_port, ip


@pytest.fixture(scope="session")
def second_device() -> None:
    """rxe1, which stays until the guest is gone."""
    if not (ROOT / "rxe1").exists():
        ip("link", "add", "veth2", "type", "veth", "peer", "name", "veth3")
        ip("addr", "add", "10.9.1.1/24", "dev", "veth2")
        for name in ("veth2", "veth3"):
            ip("link", "set", name, "mtu", "4200", "up")
        command = "rdma link add rxe1 type rxe netdev veth2"
        subprocess.run(command.split(), check=True)
    await_port("rxe1", "ACTIVE")
