"""One connection over several devices; run inside the guest (see test_suites.py) as root, because
the suite creates a second device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from pscompy.api.connection import Connection
from pscompy.api.session import Session
from pscompy.testing import remote_side
from pscompy.testing.base import Base, Link
from pscompy.testing.process import BOUND, Far
from pscompy.testing.remote_side import payload
from tests.ib.devices import DEVICES, FEW_BUFFERS, ROOT, set_port
from tests.session.cut import shut_rail

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
        """The connection goes on over the other device, which later ones of the session use."""
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
                    echo(far, connection)
                else:
                    set_port(rail, "up")
                far(remote_side.close)
            far.session = None

    @pytest.mark.parametrize("rail", [0, 1])
    @pytest.mark.parametrize("scheme", ["put", "get", "am"])
    def test_a_rail_is_lost_and_joined_again(
        self, far: Far, scheme: str, rail: int, ports: None
    ) -> None:
        one_way = {"RNDV_SCHEME": scheme, "CANDIDATE_TIMEOUT": 2}
        lost, other = f"rxe{rail}", f"rxe{1 - rail}"
        with self.joined(far, one_way, one_way) as link:
            echo(far, link.c)
            far.begin(remote_side.echo, 1)
            sent = link.c.isend(payload(LONG))
            set_port(rail, "down")
            sent.wait(timeout=BOUND)
            assert link.c.recv(timeout=BOUND) == payload(LONG)
            far.result()
            echo_until(far, link.c, lambda: link.c.stats["rails_lost"] == 1)
            assert list(link.c.explain().as_dict()["lost"]) == [rail]
            carried, received = link.c.stats[f"lane{rail}_bytes"], packets(other)
            echo(far, link.c)
            await_packets(other, received + LONG // PACKET)
            assert link.c.stats[f"lane{rail}_bytes"] == carried
            received = packets(lost)
            set_port(rail, "up")
            echo_until(far, link.c, lambda: link.c.stats["rails_joined"] == 1)
            echo_until(far, link.c, lambda: link.c.stats[f"lane{rail}_bytes"] > carried + LONG // 4)
            await_packets(lost, received + LONG // 4 // PACKET)

    @pytest.mark.parametrize("rail", [0, 1])
    def test_a_rail_is_lost_amid_puts_and_gets(self, far: Far, rail: int, ports: None) -> None:
        times, empty, back = 10, bytes(LONG), bytearray(LONG)

        def put_and_get(connection: Connection, key: bytes) -> None:
            for data in [payload(LONG), empty] * times:
                connection.put(data, key)
                back[:] = bytes(LONG)
                connection.get(back, key)
                assert back == data

        with self.joined(far) as link, ThreadPoolExecutor() as threads:
            done = threads.submit(put_and_get, link.c, link.far(remote_side.register, LONG))
            set_port(rail, "down")
            done.result(timeout=BOUND)
            stats = link.c.stats
            assert stats["rails_lost"] == 1
            assert (stats["rma_put"], stats["rma_get"]) == (2 * times, 2 * times)

    def test_one_side_has_one_rail(self, far: Far) -> None:
        with self.joined(far, there={"IB_HCA": "rxe0"}) as link:
            assert link.c.explain().lanes == 1
            echo(far, link.c)


class TestWithTcp(Base):
    """Connections over a device and tcp together."""

    transport = "ib"
    config: ClassVar = {
        **FEW_BUFFERS,
        "IB_HCA": "rxe0",
        "TCP": 1,
        "TCP_RAILS": "127.0.0.2",
        "RAILS": "ib+tcp",
    }

    @pytest.mark.parametrize("scheme", ["put", "get", "am"])
    def test_fragments_go_over_both_and_puts_and_gets_over_ib(self, far: Far, scheme: str) -> None:
        one_way = {"RNDV_SCHEME": scheme}
        with self.joined(far, one_way, one_way) as link:
            assert link.c.explain().as_dict()["rails"] == [["ib", 0], ["tcp", 0]]
            echo(far, link.c)
            both = (link.c.stats, far(remote_side.stats))
            over_ib, over_tcp = (sum(it[f"lane{i}_bytes"] for it in both) for i in range(2))
            assert over_ib + over_tcp == 2 * LONG
            assert over_ib > 0
            assert (over_tcp > 0) == (scheme == "am")

    @pytest.mark.parametrize("scheme", ["get", "am"])
    def test_tcp_is_lost(self, far: Far, scheme: str) -> None:
        one_way = {"RNDV_SCHEME": scheme}
        with self.joined(far, one_way, one_way) as link:
            echo(far, link.c)
            far.begin(remote_side.echo, 1)
            sent = link.c.isend(payload(LONG))
            shut_rail(None, "127.0.0.2")
            sent.wait(timeout=BOUND)
            assert link.c.recv(timeout=BOUND) == payload(LONG)
            far.result()
            echo_until(far, link.c, lambda: link.c.stats["rails_lost"] == 1)
            echo_until(far, link.c, lambda: link.c.stats["rails_joined"] == 1)

    @pytest.mark.usefixtures("second_device")
    def test_ib_is_lost(self, far: Far, ports: None) -> None:
        """Then tcp carries the short messages, too."""
        one_way = {"CANDIDATE_TIMEOUT": 2}
        with self.joined(far, one_way, one_way) as link:
            echo(far, link.c)
            set_port(0, "down")
            echo_until(far, link.c, lambda: link.c.stats["rails_lost"] == 1)
            assert list(link.c.explain().as_dict()["lost"]) == [0]
            set_port(0, "up")
            echo_until(far, link.c, lambda: link.c.stats["rails_joined"] == 1)

    def test_three_transports_carry_one_message(self, far: Far) -> None:
        """The transport that is lost is one that neither leads nor follows."""
        three = {"RAILS": "ib+tcp+portals", "PORTALS": 1, "PORTALS_PROVIDER": "software"}
        config = {**three, "RNDV_SCHEME": "am"}
        with self.joined(far, config, config) as link:
            known = link.c.explain().as_dict()
            assert known["rails"] == [["ib", 0], ["tcp", 0], ["portals", 0]]
            echo(far, link.c)
            for it in (link.c.stats, far(remote_side.stats)):
                assert sum(it[f"lane{i}_bytes"] for i in range(3)) == LONG
            echo_until(
                far, link.c, lambda: min(link.c.stats[f"lane{i}_bytes"] for i in range(3)) > 0
            )
            shut_rail(None, "127.0.0.2")
            echo_until(far, link.c, lambda: link.c.stats["rails_lost"] == 1)
            echo_until(far, link.c, lambda: link.c.stats["rails_joined"] == 1)
