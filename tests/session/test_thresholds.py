"""Thresholds follow from estimates, which are measured when a session opens."""

from __future__ import annotations

from puppets import ONLY

SHM = ONLY["shm"]


def test_copies_are_measured_when_the_session_opens(open_session):
    session = open_session(**SHM)
    estimates = next(it.estimates for it in session._engine.options if it.name == "shm")
    sources = {name: source for name, (_, source) in estimates.sources().items()}
    assert sources["latency_ns"] == "declared"
    assert sources["copy_bandwidth"] == "measured at open"
