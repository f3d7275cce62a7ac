"""Collective calls of real jobs, drawn at random (serial_model.py), against numpy: over several
transports, from several threads, several at once, and amid messages.

PSCOMPY_TEST_COLLECTIVES=500 makes more batches of calls (default 25).
"""

from __future__ import annotations

import os

import pytest

from pscompy.testing.faults import make_folder

BATCHES = int(os.environ.get("PSCOMPY_TEST_COLLECTIVES", "25"))
TRANSPORTS = {
    "shm": {},
    "tcp": {"PSP_SHM": "0"},
    "portals": {"PSP_SHM": "0", "PSP_TCP": "0", "PSP_PORTALS": "1"},
    "told": {"PSP_TUPLEQ": "1"},
    "told over portals": {
        "PSP_SHM": "0",
        "PSP_TCP": "0",
        "PSP_PORTALS": "1",
        "PSP_TUPLEQ": "1",
    },
    "progress thread": {"PSP_PROGRESS_THREAD": "1"},
    "checked": {"PSP_COLL_CHECK": "1"},
    "checked over tcp": {"PSP_COLL_CHECK": "1", "PSP_SHM": "0"},
}


def calls_collectives(seed, batches, threads, config=None):
    from tests.launch.collective_ranks import run

    run(seed, batches, threads, config)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 9])
def test_all_numbers_of_ranks(run, script, ranks):
    program = script(calls_collectives, ranks, BATCHES, 1)
    assert run.lines(ranks, program) == ["ok"] * ranks


@pytest.mark.parametrize("ranks", [3, 4])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_transports(run, script, transport, ranks):
    program = script(calls_collectives, 10 + ranks, BATCHES, 1)
    assert run.lines(ranks, program, **TRANSPORTS[transport]) == ["ok"] * ranks


@pytest.mark.parametrize("only", ["SHM", "TCP"])
def test_a_transport_that_is_late_and_busy(run, script, tmp_path, only):
    """Each rank makes progress when others have made much, and operations find no room at first."""
    config: dict[str, object] = {"TCP" if only == "SHM" else "SHM": 0}
    config |= {f"{only}_FAULT_{name}": n for name, n in (("BUSY", 1), ("DELAY", 1), ("SHUFFLE", 7))}
    config["PLUGINDIR"] = make_folder(tmp_path, only.lower(), "")
    program = script(calls_collectives, 40, BATCHES, 1, config)
    assert run.lines(4, program) == ["ok"] * 4


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_several_threads(run, script, transport):
    program = script(calls_collectives, 20, max(8, BATCHES // 3), 3)
    assert run.lines(3, program, **TRANSPORTS[transport]) == ["ok"] * 3
