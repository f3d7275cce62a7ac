"""One connection over several devices; run inside the guest (see test_suites.py) as root, because
the suite creates a second device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from pscompy import PscomError
from pscompy.api.connection import Connection
from pscompy.api.session import Session
from pscompy.testing import remote_side
from pscompy.testing.base import Base, Link
from pscompy.testing.process import BOUND, Far
from pscompy.testing.remote_side import payload
from tests.ib.devices import DEVICES, FEW_BUFFERS, ROOT, set_port

LONG = 8 << 20
PACKET = 4096  # largest packet, in bytes


def packets(device: str) -> int:
    """Packets that this device has received, as its driver counts them."""
    return int((ROOT / device / "ports/1/hw_counters/rcvd_pkts").read_text())


@pytest.fixture
def ports() -> Iterator[None]:
    """Sets both ports up again after the test."""
    yield
    for rail in (0, 1):
        set_port(rail, "up")


def echo(far: Far, connection: Connection) -> None:
    far.begin(remote_side.echo, 1)
    connection.send(payload(LONG), timeout=BOUND)
    assert connection.recv(timeout=BOUND) == payload(LONG)
    far.result()


def echo_until(far: Far, connection: Connection, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND
    while not holds():
        assert time.monotonic() < deadline, connection.stats
        echo(far, connection)


def await_packets(device: str, count: int) -> None:
    """Wait until the device has received `count` packets; its driver updates the counter only
    now and then."""
    deadline = time.monotonic() + BOUND
    while packets(device) < count:
        assert time.monotonic() < deadline, f"{device}: {packets(device)} of {count} packets"
        time.sleep(0.01)


@pytest.mark.usefixtures("second_device")
class TestRails(Base):
    transport = "ib"
    config: ClassVar = {**FEW_BUFFERS, "IB_HCA": "rxe0,rxe1:1"}

    @pytest.mark.parametrize("scheme", ["put", "get"])
    def test_a_long_message_goes_over_both(self, far: Far, scheme: str) -> None:
        one_way = {"RNDV_SCHEME": scheme}
        with self.joined(far, one_way, one_way) as link:
            assert link.c.explain().lanes == 2
            before = [packets(device) for device in DEVICES]
            echo(far, link.c)
            for device, was in zip(DEVICES, before, strict=True):
                await_packets(device, was + LONG // 4 // PACKET)

    def test_memory_of_the_pool_and_regions(self, link: Link) -> None:
        array = link.session.empty(LONG, "u1")
        array[:] = 7
        link.far.begin(remote_side.echo, 1)
        link.c.send(array, timeout=BOUND)
        assert link.c.recv(timeout=BOUND) == bytes([7]) * LONG
        link.far.result()
        key = link.far(remote_side.register, LONG)
        back = bytearray(LONG)
        link.c.get(back, key)
        assert back == payload(LONG)

    @pytest.mark.parametrize("rail", [0, 1])
    def test_a_port_goes_down(self, far: Far, rail: int, ports: None) -> None:
        """A connection whose first rail it is fails; one whose second rail it is goes on. Later
        ones of the same session use the other device."""
        config, other = self.settings(), f"rxe{1 - rail}"
        with Session(config=config) as session:
            far.session = session
            socket = session.listen("127.0.0.1")
            for lanes in (2, 1, 2):
                far(remote_side.connect, socket.address, config)
                connection = socket.accept(timeout=BOUND)
                assert connection.explain().lanes == lanes, str(connection.explain())
                before = packets(other)
                echo(far, connection)
                await_packets(other, before + LONG // 4 // PACKET)
                if lanes == 2:
                    set_port(rail, "down")
                    if rail == 1:
                        echo(far, connection)
                    else:
                        with pytest.raises(PscomError):
                            echo(far, connection)
                        with pytest.raises(PscomError):
                            far.result()
                else:
                    set_port(rail, "up")
                far(remote_side.close)
            far.session = None

    @pytest.mark.parametrize("scheme", ["put", "get", "am"])
    def test_the_second_rail_is_lost_and_joined_again(
        self, far: Far, scheme: str, ports: None
    ) -> None:
        one_way = {"RNDV_SCHEME": scheme, "CANDIDATE_TIMEOUT": 2}
        with self.joined(far, one_way, one_way) as link:
            echo(far, link.c)
            far.begin(remote_side.echo, 1)
            sent = link.c.isend(payload(LONG))
            set_port(1, "down")
            sent.wait(timeout=BOUND)
            assert link.c.recv(timeout=BOUND) == payload(LONG)
            far.result()
            echo_until(far, link.c, lambda: link.c.stats["rails_lost"] == 1)
            assert list(link.c.explain().as_dict()["lost"]) == [1]
            carried, received = link.c.stats["lane1_bytes"], packets("rxe0")
            echo(far, link.c)
            await_packets("rxe0", received + LONG // PACKET)
            assert link.c.stats["lane1_bytes"] == carried
            received = packets("rxe1")
            set_port(1, "up")
            echo_until(far, link.c, lambda: link.c.stats["rails_joined"] == 1)
            echo_until(far, link.c, lambda: link.c.stats["lane1_bytes"] > carried + LONG // 4)
            await_packets("rxe1", received + LONG // 4 // PACKET)

    def test_one_side_has_one_rail(self, far: Far) -> None:
        with self.joined(far, there={"IB_HCA": "rxe0"}) as link:
            assert link.c.explain().lanes == 1
            echo(far, link.c)
