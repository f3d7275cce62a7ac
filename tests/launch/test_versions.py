"""Two processes whose wires have different versions."""

from __future__ import annotations

import os

import pytest

import pscompy
from pscompy.control.handshake import limits


def meets_another_wire(ours, theirs):
    """Rank 1 speaks another version, which stands in `frames` before anything uses it."""
    if os.environ["PMI_RANK"] == "1":
        limits.VERSION_MIN = limits.VERSION_MAX = theirs
    with pscompy.World() as world:
        mine, other = (ours, theirs) if world.rank == 0 else (theirs, ours)
        with pytest.raises(pscompy.VersionMismatch) as caught:
            world[1 - world.rank].open(60)
        assert f"speaks versions {mine}...{mine} of" in str(caught.value)
        assert f"the peer {other}...{other}:" in str(caught.value)
        print(world.rank, "refused")


@pytest.mark.parametrize("shm", ["1", "0"])
def test_both_sides_name_both_versions(run, script, shm):
    own = limits.VERSION_MAX
    program = script(meets_another_wire, own, own + 7)
    assert run.lines(2, program, PSP_SHM=shm) == ["0 refused", "1 refused"]
