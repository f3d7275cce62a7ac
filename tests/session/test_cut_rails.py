"""A rail that is cut amid long messages, between two hosts, which are network namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

import pscompy
from tests.program import program
from tests.two_hosts import Namespaces
from tests.waiting import expect_soon

TIMEOUT = 300  # seconds; a guard against hanging
RAILS = 2
NETS = ",".join(f"10.77.{i}.0/24" for i in range(RAILS))
IDLE = 2  # seconds without traffic, more than PSP_TCP_RAIL_TIMEOUT, before a rail is cut
CUTS = int(os.environ.get("PSCOMPY_TEST_CUTS", "1"))
OF_NOBODY = "02:00:00:00:00:99"
SIZE = 16 << 20


TCP = {"PSP_TCP_RAILS": NETS}
PORTALS = {"PSP_TCP": "0", "PSP_PORTALS": "1", "PSP_PORTALS_PROVIDER": "software"}
# the ways in which pieces travel: as fragments, gets and puts
FABRICS = {"tcp": TCP, "get": PORTALS, "put": {**PORTALS, "PSP_RNDV_SCHEME": "put"}}
each_fabric = pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)


def exchange(address, size):
    """Send and receive messages of this size until the other one says that it is enough. Prints
    the longest time of one."""
    import time

    def other():
        if address:
            return session.connect(address)
        with session.listen("10.77.0.1") as socket:
            print(socket.address, flush=True)
            return socket.accept()

    with pscompy.Session() as session, other() as c:
        longest, number, enough = 0.0, 0, False
        while not enough:
            begun = time.monotonic()
            data = bytes([number % 251]) * size
            sent, got = c.isend(data), c.irecv()
            assert got.wait() == data, number
            sent.wait()
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

    def make(self) -> str:
        """Create both namespaces. Returns the reason if that is not possible."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            return "network namespaces need root, and `ip`"
        here, there = self.names
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            for i in range(RAILS):
                self.ip("-n", here, "link", "add", f"rail{i}", "type", "veth", "peer", "name",
                        f"rail{i}", "netns", there)  # fmt: skip
                for host, name in enumerate(self.names, 1):
                    self.ip("-n", name, "addr", "add", f"10.77.{i}.{host}/24", "dev", f"rail{i}")
                    self.ip("-n", name, "link", "set", f"rail{i}", "up")
        except subprocess.CalledProcessError as error:
            return f"no network namespaces here: {error.stderr.strip()}"
        return ""

    def ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def take_down(hosts: Hosts) -> None:
    hosts.ip("-n", hosts.names[0], "link", "set", "rail1", "down")


def bring_up(hosts: Hosts) -> None:
    hosts.ip("-n", hosts.names[0], "link", "set", "rail1", "up")


def drop_silently(hosts: Hosts) -> None:
    """Packets go to a station that does not exist, in both directions."""
    for host, name in enumerate(hosts.names, 1):
        hosts.ip("-n", name, "neigh", "replace", f"10.77.1.{3 - host}", "lladdr", OF_NOBODY, "dev",
                 "rail1", "nud", "permanent")  # fmt: skip


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts()
    try:
        if reason := made.make():
            pytest.skip(reason)
        yield made
    finally:
        made.close()


def retransmissions(name: str) -> int:
    """How often a timer of TCP has expired in a namespace because nothing was acknowledged."""
    command = ["ip", "netns", "exec", name, "cat", "/proc/net/netstat"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names, values = (line.split() for line in text.splitlines() if line.startswith("TcpExt"))
    return int(values[names.index("TCPTimeouts")])


def restore(hosts: Hosts) -> None:
    for host, name in enumerate(hosts.names, 1):
        hosts.ip("-n", name, "neigh", "del", f"10.77.1.{3 - host}", "dev", "rail1")


class Exchange:
    """Two processes that exchange messages; each waits for the next `go`."""

    def __init__(
        self, hosts: Hosts, there: dict[str, str], fabric: dict[str, str] = TCP, **config: str
    ) -> None:
        env = {"PSP_SHM": "0", **fabric, **config}
        ends = [
            {"PSP_PORTALS_INTERFACE": ",".join(f"10.77.{i}.{host}" for i in range(RAILS))}
            for host in (1, 2)
        ]
        here, other = hosts.names
        one = hosts.start(here, program(exchange, None, SIZE), **env | ends[0])
        assert one.stdout
        address = one.stdout.readline().strip()
        two = hosts.start(other, program(exchange, address, SIZE), **env | ends[1] | there)
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
        for (out, _), _ in ended:
            print(f"longest message: {out.split(maxsplit=1)[1].strip()}")
        return [out.split()[0] for (out, _), _ in ended]


@pytest.mark.parametrize("number", range(CUTS))
@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("cut", [take_down, drop_silently])
@each_fabric
def test_messages_are_whole_although_a_rail_is_cut(
    fabric: dict[str, str],
    cut: Callable[[Hosts], None],
    idle: bool,
    number: int,
    hosts: Hosts,
) -> None:
    run = Exchange(hosts, {}, fabric)
    for _ in range(3):
        run.finish_one()
        run.go()
    run.finish_one()
    if idle:
        time.sleep(IDLE)
        cut(hosts)
    run.go()
    if not idle:
        cut(hosts)
    run.go_on_until([1, 0])
    run.go()
    assert run.end() == ["1", "1"]


@pytest.mark.parametrize("number", range(CUTS))
@pytest.mark.parametrize(("cut", "mend"), [(take_down, bring_up), (drop_silently, restore)])
@each_fabric
def test_a_rail_that_comes_back_is_joined_again(
    fabric: dict[str, str],
    cut: Callable[[Hosts], None],
    mend: Callable[[Hosts], None],
    number: int,
    hosts: Hosts,
) -> None:
    run = Exchange(hosts, {}, fabric, PSP_CANDIDATE_TIMEOUT="1")
    run.finish_one()
    run.go()
    cut(hosts)
    run.go_on_until([1, 0])
    mend(hosts)
    run.go()
    run.go_on_until([1, 1])
    run.go()
    assert run.end() == ["1", "1"]


def test_the_first_lane_is_patient(hosts: Hosts) -> None:
    """The host in `two` has the second rail only, so it carries everything."""
    run = Exchange(
        hosts, {"PSP_TCP_RAILS": "203.0.113.0/24,10.77.1.0/24"}, PSP_TCP_RAIL_TIMEOUT="0.2"
    )
    run.finish_one()
    before = retransmissions(hosts.names[0])
    drop_silently(hosts)
    run.go()
    expect_soon(lambda: retransmissions(hosts.names[0]) >= before + 3)  # over a second
    restore(hosts)
    assert run.end() == ["0", "0"]
