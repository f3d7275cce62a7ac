"""The wrapper that injects faults passes on what a session tells its transport."""

from __future__ import annotations

from pathlib import Path

import pytest

from pscompy.config.config import Setting
from pscompy.testing.faults import KNOBS, wrapped

NO_FAULTS = [Setting(knob.name, "0", 0) for knob in KNOBS]

PLUGIN = """
from pscompy.plugin import Transport, hookimpl

class Ranked(Transport):
    def carry_for(self, settings, rank):
        raise ValueError(f"this is rank {rank}")

@hookimpl
def pscompy_transport():
    return Ranked("ranked", 1, (), lambda: 0)
"""


@pytest.mark.parametrize("rank", [3, -1])
def test_a_wrapped_transport_learns_the_rank(tmp_path: Path, rank: int) -> None:
    (tmp_path / "ranked.py").write_text(PLUGIN)
    with pytest.raises(ValueError, match=f"this is rank {rank}"):
        wrapped("ranked", str(tmp_path)).carry_within(NO_FAULTS, 1, rank)
