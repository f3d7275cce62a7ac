"""Behaviour that only portals has: its selection, its variables, and an interface with faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

import pscompy
from pscompy import wait_all
from pscompy.api.connection import Connection
from pscompy.api.session import Session
from pscompy.config.config import ConfigWarning
from pscompy.discovery import registry
from pscompy.errors import ConfigError
from pscompy.testing import remote_side
from pscompy.testing.base import Base, Link
from pscompy.testing.process import BOUND, Far
from pscompy.testing.remote_side import payload
from tests.portals import far as portals_far
from tests.portals.faults import faulty
from tests.program import program

ROOT = Path(pscompy.get_include())
ONLY = {"SHM": 0, "TCP": 0, "IB": 0, "PORTALS": 1, "PORTALS_PROVIDER": "software"}


def found(config: Mapping[str, object], environ: Mapping[str, str] = {}) -> registry.Found:
    _, transports = registry.load(config, environ)
    (portals,) = (it for it in transports if it.name == "portals")
    return portals


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PSP_")}
    given = {f"PSP_{name}": value for name, value in environ.items()}
    return subprocess.run(
        [sys.executable, "-m", "pscompy", *arguments],
        env={**kept, **given, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


@pytest.fixture
def far() -> Iterator[Far]:
    process = Far()
    yield process
    process.close()


# ---- selection on request -------------------------------------------------------


def test_it_is_left_alone_until_somebody_asks() -> None:
    assert found({}).unavailable() == "available, not enabled (PSP_PORTALS=1 enables it)"
    assert found({"PORTALS_PROVIDER": "auto"}).dormant
    providers = ({"PORTALS_PROVIDER": name} for name in ("software", "system"))
    for asked in ({"PORTALS": 1}, {"PORTALS": 7}, *providers):
        assert found(asked).unavailable() is None, asked
    assert found({}, {"PSP_PORTALS": "1"}).unavailable() is None
    assert found({"PORTALS": 0}).unavailable() == "excluded by PSP_PORTALS=0"


def test_info_tells() -> None:
    (line,) = (text for text in run("info").stdout.splitlines() if text.startswith("  portals "))
    assert line.endswith("available, not enabled (PSP_PORTALS=1 enables it)")
    told = json.loads(run("info", "--json", PORTALS="1").stdout)
    (portals,) = (it for it in told["transports"] if it["name"] == "portals")
    assert portals["available"]
    assert {"put", "get", "put_remote", "event"} <= set(portals["capabilities"]["caps"])


def test_a_connection_is_not_made_over_it_unless_asked(far: Far) -> None:
    with Session(config={"SHM": 0, "IB": 0}) as session:
        far.session = session
        socket = session.listen("127.0.0.1")
        far(remote_side.connect, socket.address, {"SHM": 0, "IB": 0})
        connection = socket.accept(timeout=BOUND)
        assert connection.transport == "tcp"
        assert "not enabled (PSP_PORTALS=1" in str(connection.explain())
        far(remote_side.close)
        far.session = None


# ---- variables -------------------------------------------------------------------


def test_the_deliverables_spelling_of_the_send_queue() -> None:
    config, _ = registry.load({"PORTALS_SENDRQ_SIZE": 5})
    assert config["PORTALS_SENDQ_SIZE"] == 5
    config, _ = registry.load({}, {"PSP_PORTALS_SENDRQ_SIZE": "7"})
    assert config["PORTALS_SENDQ_SIZE"] == 7


def test_the_threshold_has_a_parent() -> None:
    config, _ = registry.load({"RENDEZVOUS": "12k"})
    assert config["PORTALS_RENDEZVOUS"] == 12 << 10


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PROVIDER", "hardware"),
        ("BUFFER_SIZE", "1k"),
        ("SENDQ_SIZE", "1"),
        ("RECVQ_SIZE", "3"),
        ("OVERFLOW_SIZE", "4097"),
        ("EQ_SIZE", "63"),
        ("RNDV_FRAGMENT_SIZE", "1023"),
        ("MAX_RNDV_REQS", "0"),
    ],
)
def test_a_bad_value_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"PSP_PORTALS_{name}: '{value}'"):
        registry.load({f"PORTALS_{name}": value})


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"PORTALS_RECVQ_SIZE": 100, "PORTALS_EQ_SIZE": 64}, "PSP_PORTALS_EQ_SIZE"),
        ({"PORTALS_INTERFACE": "203.0.113.7"}, "PSP_PORTALS_INTERFACE"),
        ({"PORTALS_INTERFACE": "eth0"}, "PSP_PORTALS_INTERFACE=eth0 is neither"),
    ],
)
def test_an_interface_that_does_not_start_is_a_reason_and_the_next_is_taken(
    far: Far, setting: Mapping[str, object], reason: str
) -> None:
    common = {"SHM": 0, "IB": 0, "PORTALS": 2, "PORTALS_PROVIDER": "software"}
    with pytest.warns(ConfigWarning, match=rf"PSP_PORTALS=2 \(config\), .*{reason}"):
        session = Session(config={**common, **setting})
    with session:
        far.session = session
        socket = session.listen("127.0.0.1")
        far(remote_side.connect, socket.address, common)
        connection = socket.accept(timeout=BOUND)
        assert connection.transport == "tcp"
        assert reason in str(connection.explain())
        far(remote_side.close)
        far.session = None


# ---- connections -----------------------------------------------------------------


class TestRendezvous(Base):
    transport = "portals"
    config: ClassVar = ONLY

    def test_the_threshold_is_what_the_variable_says(self, far: Far) -> None:
        for threshold in (1000, 5000):
            setting = {"PORTALS_RENDEZVOUS": threshold}
            with self.joined(far, setting, setting) as link:
                assert link.eager_max == threshold - 1
                counted = link.counted()
                far.begin(remote_side.receive, threshold - 1, threshold)
                link.c.send(payload(threshold - 1, 0), timeout=BOUND)
                link.c.send(payload(threshold, 1), timeout=BOUND)
                far.result()
                assert counted()["rndv_rts"] == 1

    def test_a_thousand_at_once(self, far: Far) -> None:
        with self.joined(far, {"RNDV_SCHEME": "put"}, {"RNDV_SCHEME": "put"}) as link:
            count, nbytes = 1000, link.eager_max + 1
            receives = [link.c.irecv(tag=place) for place in range(count)]
            counted = link.counted()
            far.begin(portals_far.flood_tagged, count, nbytes)
            for place, data in enumerate(wait_all(receives, timeout=BOUND)):
                assert data == payload(nbytes, place)
            far.result()
            counts = counted()
            assert counts["far_rndv_put"] == count, counts
            assert counts["rndv_fallback"] == counts["far_rndv_fallback"] == 0

    def test_more_than_may_be_open_go_by_messages(self, far: Far) -> None:
        few = {"RNDV_SCHEME": "put", "PORTALS_MAX_RNDV_REQS": 3}
        with self.joined(far, few, few) as link:
            count, nbytes = 50, link.eager_max + 1
            counted = link.counted()
            receives = [link.c.irecv(tag=place) for place in range(count)]
            # all sends are posted before any is answered
            far(portals_far.post_tagged, count, nbytes)
            far.begin(portals_far.finish_tagged)
            for place, data in enumerate(wait_all(receives, timeout=BOUND)):
                assert data == payload(nbytes, place)
            far.result()
            counts = counted()
            assert min(counts["rndv_fallback"], counts["far_rndv_put"]) > 0, counts
            assert counts["far_rndv_am"] > 0, counts
            assert counts["far_rndv_put"] + counts["far_rndv_am"] == count


TROUBLE = {
    "reorder_events": 10_000,
    "disable_tables": 10_000,
    "drop": 10_000,
    "duplicate": 10_000,
    "reorder": 10_000,
}


class Faulty(Base):
    """The interfaces of both sides have `faults`."""

    faults: ClassVar[Mapping[str, int]] = TROUBLE

    @pytest.fixture(autouse=True)
    def faulty(self, far: Far) -> Iterator[None]:
        with faulty(self.faults, far):
            yield


class TestFaults(Faulty):
    """The software NI reorders events and disables table entries, and its wire loses frames."""

    transport = "portals"
    config: ClassVar = ONLY

    def test_everything_arrives_once_and_in_order(self, far: Far) -> None:
        with self.joined(far) as link:
            sizes = [(place * 37) % 3000 for place in range(2000)]
            sizes[::200] = [200_000] * 10
            counted = link.counted()
            far.begin(remote_side.send, *sizes)
            for place, nbytes in enumerate(sizes):
                assert link.c.recv(timeout=BOUND) == payload(nbytes, place), place
            far.result()
            self.happened(counted())

    def happened(self, counts: Mapping[str, int]) -> None:
        assert counts["far_portals_disabled"] > 0, counts
        assert counts["far_portals_resends"] > 0, counts
        assert counts["portals_enables"] > 0, counts


class TestFaultsWithoutMatching(TestFaults):
    """Acknowledgements fail, too."""

    config: ClassVar = {**ONLY, "PORTALS_MATCHING": 0}
    faults: ClassVar = {**TROUBLE, "fail_acks": 10_000}

    def happened(self, counts: Mapping[str, int]) -> None:
        super().happened(counts)
        assert counts["far_portals_dropped"] > 0, counts


class TestCounters(Base):
    """The transport's counters, as a user sees them."""

    transport = "portals"
    config: ClassVar = ONLY

    def test_they_have_the_names_of_their_transport(self, link: Link) -> None:
        stats = link.c.stats
        own = {name for name in stats if name.startswith("portals_")}
        documented = (ROOT / "docs" / "portals.md").read_text()
        assert len(own) > 20
        for name in own:
            assert f"`{name}`" in documented, name

    def test_what_the_interface_holds(self, far: Far) -> None:
        with self.joined(far, {"RNDV_SCHEME": "put"}, {"RNDV_SCHEME": "put"}) as link:
            named = (ROOT / "docs" / "troubleshooting.md").read_text()
            before = link.session.stats
            own = {name for name in before if name.startswith("portals_")} - set(link.c.stats)
            assert all(f"`{name}`" in named for name in own)
            assert before["portals_channels"] == 1
            assert before["portals_transfers"] == before["portals_busy_regions"] == 0
            far.begin(remote_side.receive, 100_000)
            link.c.send(payload(100_000), timeout=BOUND)
            far.result()
            assert link.session.stats["portals_spare"] > before["portals_spare"]

    def test_what_does_not_fit_a_buffer_is_a_rendezvous(self, far: Far) -> None:
        for size, rendezvous in ((4096, 1), (16384, 0)):
            setting = {"PORTALS_BUFFER_SIZE": size, "PORTALS_RENDEZVOUS": "inf"}
            with self.joined(far, setting, setting) as link:
                counted = link.counted()
                far.begin(remote_side.receive, 6000)
                link.c.send(payload(6000), timeout=BOUND)
                far.result()
                counts = counted()
                assert counts["rndv_rts"] == rendezvous
                assert counts["eager_bcopy"] == 1 - rendezvous

    def test_fragments_of_a_rendezvous(self, far: Far) -> None:
        setting = {"PORTALS_RNDV_FRAGMENT_SIZE": 4096, "RNDV_SCHEME": "put"}
        with self.joined(far, setting, setting) as link:
            counted = link.counted()
            far.begin(remote_side.receive, 100_000)
            link.c.send(payload(100_000), timeout=BOUND)
            far.result()
            assert counted()["portals_fragments"] == -(-100_000 // 4096)

    def test_each_connection_has_its_own(self, far: Far) -> None:
        with two_connections(far, ONLY) as (first, second):
            before = first.stats["portals_puts"], second.stats["portals_puts"]
            for place in range(10):
                far.begin(portals_far.echo_both)
                second.send(payload(5, place), timeout=BOUND)
                first.send(payload(7, place), timeout=BOUND)
                first.recv(timeout=BOUND)
                second.recv(timeout=BOUND)
                far.result()
            after = first.stats["portals_puts"], second.stats["portals_puts"]
            assert all(b - a >= 10 for a, b in zip(before, after, strict=True))


@contextmanager
def two_connections(
    far: Far, config: Mapping[str, object]
) -> Iterator[tuple[Connection, Connection]]:
    """Two connections between this process, which uses `config`, and the far one (ONLY)."""
    with Session(config=config) as session:
        far.session = session
        socket = session.listen("127.0.0.1")
        far(remote_side.connect, socket.address, ONLY)
        first = socket.accept(timeout=BOUND)
        far(portals_far.connect_again, socket.address)
        second = socket.accept(timeout=BOUND)
        assert first.transport == second.transport == "portals"
        yield first, second
        far(remote_side.close)
        far.session = None


def check_exchange_on_both(far: Far, first: Connection, second: Connection, count: int) -> None:
    for place in range(count):
        far.begin(portals_far.echo_both)
        second.send(payload(500, place), timeout=BOUND)
        first.send(payload(700, place), timeout=BOUND)
        assert first.recv(timeout=BOUND) == payload(700, place)
        assert second.recv(timeout=BOUND) == payload(500, place)
        far.result()


def test_two_connections_between_the_same_two_processes(far: Far) -> None:
    with two_connections(far, ONLY) as (first, second):
        check_exchange_on_both(far, first, second, 100)


def explained_demo(folder: str) -> None:
    """The demo, whose world at its end prints how each connection matches."""
    import sys

    sys.path.insert(0, folder)
    import heat

    class World(heat.World):  # type: ignore[misc]
        def __exit__(self, *error: object) -> object:
            for rank in set(range(self.size)) - {self.rank}:
                if self[rank].transport:
                    known = self[rank].explain().as_dict()
                    print("explained", known["choice"], known["matching"], flush=True)
            return super().__exit__(*error)

    heat.World = World
    sys.exit(heat.main())


def test_the_demo(tmp_path: Path) -> None:
    text = program(explained_demo, str(ROOT / "examples" / "heat"))
    small = ("--size", "48", "--steps", "60", "--out", str(tmp_path))
    environ = {"SHM": "0", "TCP": "0", "IB": "0", "PORTALS": "1"}
    done = run("run", "-n", "4", "-c", text, *small, **environ)
    assert done.returncode == 0, done.stderr
    assert "matches the serial result" in done.stdout
    told = [line for line in done.stdout.splitlines() if line.startswith("explained")]
    assert len(told) >= 2 * 3, done.stdout  # each end of three neighbours' connections
    assert set(told) == {"explained portals fabric"}
