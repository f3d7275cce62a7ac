"""The fate of connections whose device is removed; run inside the guest (see test_guest.py), as
root.

Soft-RoCE cannot remove a device that a program uses: its driver keeps the device until the last
user closes it, without notifying the users. Only the network interface below is removed at once.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pscompy import PscomError
from pscompy.api.session import Session
from pscompy.testing import remote_side
from pscompy.testing.base import Base, Link
from pscompy.testing.process import BOUND, Far
from pscompy.testing.remote_side import payload
from tests.ib.devices import ROOT, ip, make_device

INTERFACE = Path("/sys/class/net/veth0")


@pytest.fixture
def device() -> Iterator[None]:
    """Leaves a device after the test, whether the test has removed it or not."""
    yield
    if INTERFACE.exists():
        ip("link", "del", "veth0")
    make_device(0)


def echo(link: Link) -> None:
    link.far.begin(remote_side.echo, 1)
    link.c.send(payload(1000), timeout=BOUND)
    assert link.c.recv(timeout=BOUND) == payload(1000)
    link.far.result()


def ends(removal: subprocess.Popen[bytes]) -> None:
    """Wait for the removal, which ends because no process has the device open any more."""
    assert removal.wait(BOUND) == 0
    deadline = time.monotonic() + BOUND
    while ROOT.exists() and "rxe0" in [path.name for path in ROOT.iterdir()]:
        assert time.monotonic() < deadline, "the device is still there"
        time.sleep(0.01)


@pytest.mark.usefixtures("device")
class TestRemoved(Base):
    transport = "ib"

    def test_who_has_it_open_keeps_it(self, far: Far) -> None:
        with self.joined(far) as link:
            echo(link)
            removal = subprocess.Popen(["rdma", "link", "delete", "rxe0"])
            for _ in range(10):
                echo(link)
            assert removal.poll() is None, "it does not wait for us"
        ends(removal)
        self._over_tcp(far)

    def test_its_interface_goes(self, far: Far) -> None:
        with self.joined(far) as link:
            echo(link)
            removal = subprocess.Popen(["ip", "link", "del", "veth0"])
            deadline = time.monotonic() + BOUND
            with pytest.raises(PscomError) as caught:
                while time.monotonic() < deadline:
                    echo(link)
            print(type(caught.value).__name__, caught.value)
            with suppress(PscomError):  # the far process may have finished before
                link.far.result()
        ends(removal)
        self._over_tcp(far)

    @staticmethod
    def _over_tcp(far: Far) -> None:
        config = {"SHM": 0}
        with Session(config=config) as session:
            far.session = session
            socket = session.listen("127.0.0.1")
            far(remote_side.connect, socket.address, config)
            connection = socket.accept(timeout=BOUND)
            assert connection.transport == "tcp", str(connection.explain())
            assert "no RDMA device" in connection.explain().reasons["ib"]
            far(remote_side.close)
            far.session = None
