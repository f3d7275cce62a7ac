"""Conformance cases with injected faults: no resources, late progress, broken endpoints, and
processes that die during an operation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pscompy import PeerLost, PscomError, wait_all
from pscompy.testing import faults, remote_side
from pscompy.testing.base import CAP_GET, CAP_PUT, LARGE, Base, Joined, Link
from pscompy.testing.process import BOUND, Far
from pscompy.testing.remote_side import payload

OPERATIONS = (2, 3, 4, 5, 7, 10, 20, 50)  # numbers of the operations at which a fault is injected


class Faults(Base):
    """Cases with a transport that is slow, has no room, or fails (faults.py)."""

    def faulty(
        self, folder: Path, far: Far, here: Mapping[str, Any] = {}, there: Mapping[str, Any] = {}
    ) -> Joined:
        """Return a context like that of `joined`, but with the wrapped transport. `here` and
        `there` set the faults of each side by the variables KNOBS of faults.py, without their
        prefix."""
        own = f"{self.transport.upper()}_{faults.PREFIX}"
        plugindir = self.settings().get("PLUGINDIR", "")
        wrapped = {"PLUGINDIR": faults.make_folder(folder, self.transport, plugindir)}
        knobs = [{own + name: value for name, value in knobs.items()} for knobs in (here, there)]
        return self.joined(far, {**wrapped, **knobs[0]}, {**wrapped, **knobs[1]})

    @pytest.mark.parametrize(
        "knobs",
        [
            {"BUSY": 1},
            {"BUSY": 3},
            {"DELAY": 2},
            {"BUSY": 1, "DELAY": 1},
            {"SHUFFLE": 9},
            {"BUSY": 1, "SHUFFLE": 40},
        ],
    )
    def test_everything_arrives_however_slowly(
        self, tmp_path: Path, far: Far, knobs: dict[str, int]
    ) -> None:
        with self.faulty(tmp_path, far, knobs, knobs) as link:
            limit = link.eager_max
            sizes = [8, limit, limit + 1, 0, 100_000, 1 << 20, limit + 1, 5] * 3
            counted = link.counted()
            far.begin(remote_side.exchange, sizes)
            sends = [link.c.isend(payload(n, i), tag=i) for i, n in enumerate(sizes)]
            came = wait_all([link.c.irecv(tag=i) for i in range(len(sizes))], timeout=BOUND)
            wait_all(sends, timeout=BOUND)
            far.result()
            counts = counted()
            assert came == [payload(n, i) for i, n in enumerate(sizes)]
            if "BUSY" in knobs:
                assert min(counts["back_pressure"], counts["far_back_pressure"]) > 0, counts

    def test_a_flood_against_a_transport_that_is_busy(self, tmp_path: Path, far: Far) -> None:
        with self.faulty(tmp_path, far, {"BUSY": 2}, {"BUSY": 2}) as link:
            far.begin(remote_side.flood, 500, 1000)
            for place in range(500):
                assert link.c.recv(timeout=BOUND) == payload(1000, place)
            far.result()

    def test_active_messages_and_memory_over_a_busy_transport(
        self, tmp_path: Path, far: Far
    ) -> None:
        with self.faulty(tmp_path, far, {"BUSY": 2}, {"BUSY": 2}) as link:
            far(remote_side.handle_messages, 1)
            rkey = far(remote_side.register, LARGE)
            for place in range(50):
                link.c.am_send(1, b"%d" % place, payload(500, place))
            link.c.put(payload(LARGE, 1), rkey)
            buffer = bytearray(LARGE)
            link.c.get(buffer, rkey)
            assert buffer == payload(LARGE, 1)
            came = far(remote_side.handled, 50)
            assert [message[2] for message in came] == [payload(500, i) for i in range(50)]

    @pytest.mark.parametrize("refused", [1, 1000])
    def test_without_room_for_registrations_it_goes_by_messages(
        self, tmp_path: Path, far: Far, refused: int
    ) -> None:
        knobs = {"REFUSE": refused}
        with self.faulty(tmp_path, far, knobs, knobs) as link:
            if not link.caps & (CAP_PUT | CAP_GET) or link.rendezvous == "am":
                pytest.skip(f"{self.transport} registers no memory for a rendezvous")
            counted = link.counted()
            for _ in range(2):
                far.begin(remote_side.echo, 1)
                link.c.send(payload(LARGE), timeout=BOUND)
                assert link.c.recv(timeout=BOUND) == payload(LARGE)
                far.result()
            counts = counted()
            assert counts["rndv_fallback"] + counts["far_rndv_fallback"] > 0, counts

    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_a_broken_endpoint_is_told_on_both_sides(
        self, tmp_path: Path, far: Far, operation: int
    ) -> None:
        with self.faulty(tmp_path, far, {"FAIL_AT": operation}) as link:
            far.begin(remote_side.echo, 1000)
            with pytest.raises(PscomError):
                _echo_all(link)
            with pytest.raises(PscomError):
                far.result()

    @pytest.mark.parametrize("operation", OPERATIONS)
    def test_a_death_at_any_operation_is_a_lost_peer(
        self, tmp_path: Path, far: Far, operation: int
    ) -> None:
        with self.faulty(tmp_path, far, there={"KILL_AT": operation}) as link:
            far.begin(remote_side.echo, 1000)
            with pytest.raises(PeerLost):
                _echo_all(link)
            assert far.wait() == -9


def _echo_all(link: Link) -> None:
    """Send a thousand messages of four sizes and receive each back."""
    for round_ in range(250):
        for nbytes in (8, link.eager_max, link.eager_max + 1, 300_000):
            link.c.send(payload(nbytes, round_), timeout=BOUND)
            assert link.c.recv(timeout=BOUND) == payload(nbytes, round_)
