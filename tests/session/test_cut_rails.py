"""A rail that is cut amid messages, between two hosts, which are network namespaces."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

import pscompy
from tests.gateway.namespaces import ip, why_no_namespaces
from tests.program import program
from tests.two_hosts import Namespaces
from tests.waiting import expect_soon

TIMEOUT = 300  # seconds; a guard against hanging
RAILS = 2
NETS = ",".join(f"10.77.{i}.0/24" for i in range(RAILS))
IDLE = 2  # seconds without traffic, more than PSP_TCP_RAIL_TIMEOUT, before a rail is cut
CUTS = int(os.environ.get("PSCOMPY_TEST_CUTS", "1"))
OF_NOBODY = "02:00:00:00:00:99"
SIZE = int(os.environ.get("PSCOMPY_TEST_CUT_SIZE", 16 << 20))
MANY = 0  # instead of a message of some size: many short ones


TCP = {"PSP_TCP_RAILS": NETS}
PORTALS = {"PSP_TCP": "0", "PSP_PORTALS": "1", "PSP_PORTALS_PROVIDER": "software"}
# the ways in which pieces travel: as fragments, gets and puts
FABRICS = {"tcp": TCP, "get": PORTALS, "put": {**PORTALS, "PSP_RNDV_SCHEME": "put"}}
# portals on the first link, tcp on the second
MIXED = {**PORTALS, "PSP_TCP": "1", "PSP_TCP_RAILS": "10.77.1.0/24", "PSP_RAILS": "portals+tcp"}


def exchange(address, size, host):
    """Send and receive messages of this size, or many short ones, until the other one says that it
    is enough. Prints the longest time of one round."""
    import time

    def data(number):
        if size:
            return [bytes([number % 251]) * size]
        return [(1000 * number + i).to_bytes(8, "little") * (1 + i * i % 500) for i in range(300)]

    with pscompy.Session() as session:
        if address:
            c = session.connect(address)
        else:
            socket = session.listen(host)
            print(socket.address, flush=True)
            c = socket.accept()
        longest, number, enough = 0.0, 0, False
        while not enough:
            begun = time.monotonic()
            sent = [c.isend(it) for it in data(number)]
            for i, it in enumerate(data(number)):
                assert bytes(c.recv()) == it, (number, i)
            pscompy.wait_all(sent)
            longest = max(longest, time.monotonic() - begun)
            number += 1
            if address:
                enough = bytes(c.recv()) == b"enough"
            else:
                print(c.stats["rails_lost"], c.stats["rails_joined"], flush=True)
                enough = not sys.stdin.readline().strip()
                c.send(b"enough" if enough else b"on")
        print(c.stats["rails_lost"], f"{longest:.3f} s", flush=True)


class Hosts(Namespaces):
    """Two namespaces with RAILS links: 10.77.I.1 and 10.77.I.2 on link I."""

    def __init__(self) -> None:
        super().__init__(*(f"psc{os.getpid()}c{end}" for end in (1, 2)))

    def make(self) -> None:
        """Create both namespaces."""
        here, there = self.names
        for name in self.names:
            ip("netns", "add", name)
        for i in range(RAILS):
            ip("-n", here, "link", "add", f"rail{i}", "type", "veth", "peer", "name",
               f"rail{i}", "netns", there)  # fmt: skip
            for host, name in enumerate(self.names, 1):
                ip("-n", name, "addr", "add", f"10.77.{i}.{host}/24", "dev", f"rail{i}")
                ip("-n", name, "link", "set", f"rail{i}", "up")


def take_down(hosts: Hosts, rail: int) -> None:
    ip("-n", hosts.names[0], "link", "set", f"rail{rail}", "down")


def bring_up(hosts: Hosts, rail: int) -> None:
    ip("-n", hosts.names[0], "link", "set", f"rail{rail}", "up")


def drop_silently(hosts: Hosts, rail: int) -> None:
    """Packets go to a station that does not exist, in both directions."""
    for host, name in enumerate(hosts.names, 1):
        ip("-n", name, "neigh", "replace", f"10.77.{rail}.{3 - host}", "lladdr", OF_NOBODY,
           "dev", f"rail{rail}", "nud", "permanent")  # fmt: skip


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if reason := why_no_namespaces():
        pytest.skip(reason)
    made = Hosts()
    try:
        made.make()
        yield made
    finally:
        made.close()


def retransmissions(name: str) -> int:
    """How often a timer of TCP has expired in a namespace because nothing was acknowledged."""
    command = ["ip", "netns", "exec", name, "cat", "/proc/net/netstat"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names, values = (line.split() for line in text.splitlines() if line.startswith("TcpExt"))
    return int(values[names.index("TCPTimeouts")])


def restore(hosts: Hosts, rail: int) -> None:
    for host, name in enumerate(hosts.names, 1):
        ip("-n", name, "neigh", "del", f"10.77.{rail}.{3 - host}", "dev", f"rail{rail}")


class Exchange:
    """Two processes that exchange messages; each waits for the next `go`."""

    def __init__(
        self,
        hosts: Hosts,
        there: dict[str, str],
        fabric: str = "tcp",
        size: int = SIZE,
        listen: str | None = "10.77.0.1",
        **config: str,
    ) -> None:
        env = {"PSP_SHM": "0", **{**FABRICS, "mixed": MIXED}[fabric], **config}
        links = range(1 if fabric == "mixed" else RAILS)
        ends = [
            {"PSP_PORTALS_INTERFACE": ",".join(f"10.77.{i}.{host}" for i in links)}
            for host in (1, 2)
        ]
        here, other = hosts.names
        one = hosts.start(here, program(exchange, None, size, listen), **env | ends[0])
        assert one.stdout
        address = one.stdout.readline().strip()
        two = hosts.start(other, program(exchange, address, size, None), **env | ends[1] | there)
        self.one, self.both = one, (one, two)

    def finish_one(self) -> list[int]:
        """Wait for the next message. Returns how many rails are lost, and joined again."""
        assert self.one.stdout
        line = self.one.stdout.readline()
        assert line, self.one.communicate(timeout=TIMEOUT)
        return [int(number) for number in line.split()]

    def go_on_until(self, wanted: list[int]) -> None:
        """Exchange messages until so many rails are lost, and joined again. Not every message has
        pieces on every rail: one that seems to be slow is left out for a while."""
        deadline = time.monotonic() + TIMEOUT
        while self.finish_one() != wanted:
            assert time.monotonic() < deadline
            self.go()

    def go(self, last: bool = False) -> None:
        assert self.one.stdin
        self.one.stdin.write("\n" if last else "on\n")
        self.one.stdin.flush()

    def end(self) -> list[str]:
        """The numbers of rails that the two have lost."""
        self.finish_one()
        self.go(last=True)
        ended = [(it.communicate(timeout=TIMEOUT), it.returncode) for it in self.both]
        assert [code for _, code in ended] == [0, 0], ended
        for (out, log), _ in ended:
            assert "a piece failed" not in log  # the transport knows a better reason
            print(f"longest message: {out.split(maxsplit=1)[1].strip()}")
        return [out.split()[0] for (out, _), _ in ended]


def cut_amid_messages(
    hosts: Hosts,
    fabric: str,
    cut: Callable[[Hosts, int], None],
    rail: int,
    size: int,
    idle: bool = False,
) -> list[str]:
    """Cut a rail. Returns the numbers of rails that the two have lost; they check all bytes."""
    run = Exchange(hosts, {}, fabric, size)
    for _ in range(3):
        run.finish_one()
        run.go()
    run.finish_one()
    if idle:
        time.sleep(IDLE)
        cut(hosts, rail)
    run.go()
    if not idle:
        cut(hosts, rail)
    run.go_on_until([1, 0])
    run.go()
    return run.end()


@pytest.mark.parametrize("number", range(CUTS))
@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("cut", [take_down, drop_silently])
@pytest.mark.parametrize(
    ("fabric", "rail", "size"),
    [
        ("tcp", 0, MANY),
        ("get", 0, MANY),
        *((fabric, rail, SIZE) for fabric in FABRICS for rail in range(RAILS)),
    ],
)
def test_messages_are_whole_although_a_rail_is_cut(
    fabric: str,
    cut: Callable[[Hosts, int], None],
    rail: int,
    size: int,
    idle: bool,
    number: int,
    hosts: Hosts,
) -> None:
    assert cut_amid_messages(hosts, fabric, cut, rail, size, idle) == ["1", "1"]


@pytest.mark.parametrize("cut", [take_down, drop_silently])
@pytest.mark.parametrize(("rail", "size"), [(0, MANY), (0, SIZE), (1, SIZE)])
def test_one_of_two_transports_is_cut(
    cut: Callable[[Hosts, int], None], rail: int, size: int, hosts: Hosts
) -> None:
    """Short messages that went over portals go over tcp from then on."""
    assert cut_amid_messages(hosts, "mixed", cut, rail, size) == ["1", "1"]


def explained(address, host):
    """Exchange a message, and print how the connection came about."""
    with pscompy.Session() as session:
        if address:
            c = session.connect(address)
        else:
            socket = session.listen(host)
            print(socket.address, flush=True)
            c = socket.accept()
        c.send(b"x")
        assert bytes(c.recv()) == b"x"
        print(c.explain())


def test_the_second_transport_does_not_reach_the_peer(hosts: Hosts) -> None:
    """Then the first one carries the connection alone."""
    drop_silently(hosts, 1)
    env = {"PSP_SHM": "0", **MIXED, "PSP_CANDIDATE_TIMEOUT": "1"}
    ends = [{**env, "PSP_PORTALS_INTERFACE": f"10.77.0.{host}"} for host in (1, 2)]
    one = hosts.start(hosts.names[0], program(explained, None, "10.77.0.1"), **ends[0])
    assert one.stdout
    address = one.stdout.readline().strip()
    two = hosts.start(hosts.names[1], program(explained, address, None), **ends[1])
    for process in (one, two):
        out, log = process.communicate(timeout=TIMEOUT)
        assert " over portals\n  portals: chosen\n" in out, log
        (why,) = (line for line in out.splitlines() if line.startswith("  PSP_RAILS: "))
        assert "rail 0 of tcp: " in why


def cut_and_mend(
    hosts: Hosts,
    fabric: str,
    cut: Callable[[Hosts, int], None],
    mend: Callable[[Hosts, int], None],
    rail: int,
) -> list[str]:
    """Cut a rail, mend it, and cut the other one. Returns the numbers of rails that the two have
    lost."""
    run = Exchange(hosts, {}, fabric, PSP_CANDIDATE_TIMEOUT="1")
    run.finish_one()
    run.go()
    cut(hosts, rail)
    run.go_on_until([1, 0])
    mend(hosts, rail)
    run.go()
    run.go_on_until([1, 1])
    cut(hosts, 1 - rail)
    run.go()
    run.go_on_until([2, 1])
    run.go()
    return run.end()


@pytest.mark.parametrize("number", range(CUTS))
@pytest.mark.parametrize(("cut", "mend"), [(take_down, bring_up), (drop_silently, restore)])
@pytest.mark.parametrize("rail", range(RAILS))
@pytest.mark.parametrize("fabric", FABRICS)
def test_a_rail_that_comes_back_is_joined_again(
    fabric: str,
    cut: Callable[[Hosts, int], None],
    mend: Callable[[Hosts, int], None],
    rail: int,
    number: int,
    hosts: Hosts,
) -> None:
    """Then the other one may fail."""
    assert cut_and_mend(hosts, fabric, cut, mend, rail) == ["2", "2"]


@pytest.mark.parametrize("rail", range(RAILS))
def test_a_transport_that_comes_back_is_joined_again(rail: int, hosts: Hosts) -> None:
    assert cut_and_mend(hosts, "mixed", take_down, bring_up, rail) == ["2", "2"]


@pytest.mark.parametrize("fabric", ["tcp", "get"])
@pytest.mark.parametrize("listen", ["10.77.0.1", None])
def test_a_connection_outlives_its_guard(listen: str | None, fabric: str, hosts: Hosts) -> None:
    """The link that guards the connection ends with the first rail. Another link is made over the
    other rail, if the listener has an address there, or when the first one carries again."""
    run = Exchange(
        hosts,
        {},
        fabric,
        MANY,
        listen,
        PSP_GUARD_TIMEOUT="2",
        PSP_CANDIDATE_TIMEOUT="1",
        PSP_DEBUG="4",
    )
    run.finish_one()
    run.go()
    drop_silently(hosts, 0)
    run.go_on_until([1, 0])
    until = time.monotonic() + 5
    while time.monotonic() < until:
        run.go()
        run.finish_one()
    restore(hosts, 0)
    run.go()
    run.go_on_until([1, 1])
    run.both[1].kill()
    run.go()
    _, log = run.one.communicate(timeout=TIMEOUT)
    assert "another precon guards the connection" in log
    assert "PeerLost" in log


def test_the_first_lane_is_patient(hosts: Hosts) -> None:
    """The host in `two` has the second rail only, so it carries everything."""
    run = Exchange(
        hosts, {"PSP_TCP_RAILS": "203.0.113.0/24,10.77.1.0/24"}, PSP_TCP_RAIL_TIMEOUT="0.2"
    )
    run.finish_one()
    before = retransmissions(hosts.names[0])
    drop_silently(hosts, 1)
    run.go()
    expect_soon(lambda: retransmissions(hosts.names[0]) >= before + 3)  # over a second
    restore(hosts, 1)
    assert run.end() == ["0", "0"]
