"""Hosts with several addresses, some of which cannot be reached from the other host.

The two hosts are network namespaces. A link joins them in 10.77.0.0/24. Each also has the
address 172.31.0.1 on a device without a neighbour, like the bridge of a container engine, and
the default route points to that device.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

import pscompy
from tests.names import ANOTHER_KEY
from tests.program import program
from tests.two_hosts import Namespaces

TIMEOUT = 120  # seconds; a guard against hanging
BRIDGE = "172.31.0.1"


def listener(port, host=None):

    with pscompy.Session() as session, session.listen(host, port) as sock:
        print(sock.address, flush=True)
        c = sock.accept()
        c.send(c.recv())
        print(c.transport, flush=True)
        try:
            c.recv()
        except pscompy.PscomError as error:
            print(type(error).__name__, error, flush=True)


def caller(address, stays=False):
    import time

    with pscompy.Session() as session:
        c = session.connect(address)
        c.send(b"over there")
        assert bytes(c.recv()) == b"over there"
        print(c.transport, flush=True)
        begun = time.monotonic()
        try:
            c.recv() if stays else c.close()
        except pscompy.PscomError as error:
            print(type(error).__name__, error, time.monotonic() - begun, flush=True)


def accept_and_say_nothing():
    import socket

    with socket.create_server(("0.0.0.0", 4477)) as server:
        print("ready", flush=True)
        kept = [server.accept() for _ in range(100)]
        assert kept


def addresses(**options):
    from pscompy.control.addresses import advertised

    print(*advertised("", **options))


class Hosts(Namespaces):
    """Two network namespaces: the process in `one` connects, the process in `two` listens."""

    def __init__(self) -> None:
        self.one, self.two = (f"psc{os.getpid()}h{n}" for n in (1, 2))
        super().__init__(self.one, self.two)

    def make(self) -> str:
        """Create both namespaces; returns the reason if that is not possible, else an empty
        string."""
        if os.geteuid() != 0:
            return "network namespaces need root"
        commands = [f"ip netns add {self.one}", f"ip netns add {self.two}"]
        commands += [f"ip -n {host} link set lo up" for host in (self.one, self.two)]
        commands.append(f"ip -n {self.one} link add to2 type veth peer to1 netns {self.two}")
        for host, device, last in ((self.one, "to2", 1), (self.two, "to1", 2)):
            commands += [
                f"ip -n {host} addr add 10.77.0.{last}/24 dev {device}",
                f"ip -n {host} link set {device} up",
                f"ip -n {host} link add bridge type bridge",
                f"ip -n {host} addr add {BRIDGE}/16 dev bridge",
                f"ip -n {host} link set bridge up",
                f"ip -n {host} route add default via 172.31.0.254",
            ]
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                return f"{command}: {done.stderr.strip()}"
        return ""

    def ip(self, host: str, words: str) -> None:
        subprocess.run(["ip", "-n", host, *words.split()], check=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if shutil.which("ip") is None:
        pytest.skip("no such network here: there is no `ip`")
    made = Hosts()
    try:
        if reason := made.make():
            pytest.skip(f"no such network here: {reason}")
        yield made
    finally:
        made.close()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert process.stderr is not None
    said = process.stdout.readline().strip()
    assert said, process.stderr.read()
    return said


def nobody(hosts: Hosts) -> None:
    """The caller has the listener's address itself, and no process listens there."""


def hole(hosts: Hosts) -> None:
    """Packets of the caller to this address are lost, and no answer arrives."""
    hosts.ip(hosts.one, f"addr del {BRIDGE}/16 dev bridge")
    hosts.ip(hosts.one, "addr add 172.31.0.9/16 dev bridge")


def mute(hosts: Hosts) -> None:
    """A process listens at the same address and port but never answers."""
    assert line(hosts.start(hosts.one, program(accept_and_say_nothing))) == "ready"


def stranger(hosts: Hosts) -> None:
    """Another process with the same key listens at the same address and port."""
    assert BRIDGE in line(hosts.start(hosts.one, program(listener, 4477), PSP_SHM=0))


def other_key(hosts: Hosts) -> None:
    assert BRIDGE in line(hosts.start(hosts.one, program(listener, 4477), PSP_KEY=ANOTHER_KEY))


@pytest.mark.parametrize("there", [nobody, hole, mute, stranger, other_key])
def test_ranks_connect_over_the_interface_that_works(
    hosts: Hosts, there: Callable[[Hosts], None]
) -> None:
    there(hosts)
    listening = hosts.start(hosts.two, program(listener, 4477), PSP_SHM=0)
    address = line(listening)
    assert address.startswith(f"psp://{BRIDGE}:4477,10.77.0.2:4477/")
    calling = hosts.start(hosts.one, program(caller, address), PSP_SHM=0)
    assert line(calling) == "tcp"
    assert line(listening) == "tcp"
    assert calling.wait(TIMEOUT) == 0


def test_an_address_of_one_link_only(hosts: Hosts) -> None:
    """A link-local address contains the interface, which each host names in its own way."""
    hosts.ip(hosts.two, "addr add fe80::2/64 dev to1 nodad")
    hosts.ip(hosts.one, "addr add fe80::1/64 dev to2 nodad")
    listening = hosts.start(hosts.two, program(listener, 4477, "fe80::2%to1"), PSP_SHM=0)
    address = line(listening)
    assert address.startswith("psp://[fe80::2%to1]:4477/")
    refused = hosts.start(hosts.one, program(caller, "[fe80::2%to2]:4476"), PSP_RETRY=0)
    assert (
        "[fe80::2%to2]:4476 cannot be reached: Connection refused"
        in refused.communicate(timeout=TIMEOUT)[1]
    )
    calling = hosts.start(hosts.one, program(caller, address.replace("to1", "to2")), PSP_SHM=0)
    assert [line(calling), line(listening)] == ["tcp", "tcp"]
    assert calling.wait(TIMEOUT) == 0


def test_an_outage_of_the_network_is_not_the_end_of_a_process(hosts: Hosts) -> None:
    env = {"PSP_SHM": 0, "PSP_GUARD_TIMEOUT": 3}
    listening = hosts.start(hosts.two, program(listener, 0), **env)
    calling = hosts.start(hosts.one, program(caller, line(listening), stays=True), **env)
    assert [line(calling), line(listening)] == ["tcp", "tcp"]
    hosts.ip(hosts.one, "link set to2 down")
    for process in (calling, listening):
        said = line(process)
        assert said.startswith("PeerLost")
        assert "does not answer, or the network to it is down" in said
        assert "PSP_GUARD_TIMEOUT" in said
        assert "has ended" not in said


def test_every_address_is_advertised_the_outgoing_one_first(
    hosts: Hosts,
) -> None:
    hosts.ip(hosts.two, "addr add 10.77.0.3/24 dev to1")
    hosts.ip(hosts.two, "addr add fd77::2/64 dev to1 nodad")
    told = line(hosts.start(hosts.two, program(addresses))).split()
    without_v6 = line(hosts.start(hosts.two, program(addresses, v6=False))).split()
    assert told == [BRIDGE, "10.77.0.2", "10.77.0.3", "fd77::2"]
    assert without_v6 == [BRIDGE, "10.77.0.2", "10.77.0.3"]


def test_with_loopback_alone_that_is_advertised(hosts: Hosts) -> None:
    for device in ("to1", "bridge"):
        hosts.ip(hosts.two, f"link set {device} down")
    assert line(hosts.start(hosts.two, program(addresses))) == "127.0.0.1"
