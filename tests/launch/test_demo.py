"""The demo program, run as a user does."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HEAT = Path(__file__).parents[2] / "examples" / "heat" / "heat.py"
SMALL = ("--size", 48, "--steps", 60)
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(("ranks", "env"), [(1, {}), (4, {}), (3, {"PSP_SHM": "0"})])
def test_the_demo_matches_the_serial_result(run, tmp_path, ranks, env):
    done = run("-n", ranks, HEAT, *SMALL, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "matches the serial result" in done.stdout
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("the pictures need matplotlib: pip install 'pscompy[demo]'")
    for name in ("field.png", "connections.png"):
        assert (tmp_path / "heat-out" / name).read_bytes().startswith(PNG)


def wrong_heat(folder):
    """The demo, of which rank 1 computes with another conductivity."""
    sys.path.insert(0, folder)
    import heat

    if os.environ["PMI_RANK"] == "1":
        heat.CONDUCTIVITY = 0.1
    sys.exit(heat.main())


def test_the_demo_notices_a_wrong_result(run, script, tmp_path):
    done = run("-n", 2, script(wrong_heat, str(HEAT.parent)), *SMALL, "--out", tmp_path)
    assert done.returncode == 1
    assert "does NOT match the serial result" in done.stdout


def test_the_demo_helps(run):
    done = run(HEAT, "--help")
    assert done.returncode == 0
    assert all(option in done.stdout for option in ("--size", "--steps", "--out"))


def test_the_demo_needs_a_row_for_each_rank(run, tmp_path):
    done = run("-n", 3, HEAT, "--size", 2, "--out", tmp_path)
    assert done.returncode == 1
    assert "2 rows are not enough for 3 ranks" in done.stderr
