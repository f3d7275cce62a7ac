"""The programs of examples/collectives, which compare their results with serial ones."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "examples/collectives"
SIZES = {"gradients.py": "--size=100", "kmeans.py": "--points=999", "fourier.py": "--size=60"}


@pytest.mark.parametrize("variables", [{"PSP_TCP": "0"}, {"PSP_SHM": "0"}], ids=["shm", "tcp"])
@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("name", SIZES)
def test_the_result_is_the_serial_one(run, name, ranks, variables):
    done = run("-n", ranks, PROGRAMS / name, SIZES[name], env=variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("matches the serial result")


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("gradients.py", "rows @ whole", "rows @ (2 * whole)"),
        ("kmeans.py", "points(count)[world.rank :", "points(count)[world.rank + 1 :"),
        ("fourier.py", "world.alltoall(blocks)", "blocks"),
    ],
)
def test_a_wrong_result_is_noticed(run, tmp_path, name, right, wrong):
    text = (PROGRAMS / name).read_text()
    (tmp_path / name).write_text(text.replace(right, wrong))
    done = run("-n", 3, tmp_path / name, SIZES[name])
    assert done.returncode == 1
    assert done.stdout.startswith("does NOT match the serial result")


@pytest.mark.parametrize(
    ("name", "argument", "error"),
    [
        ("kmeans.py", "--points=7", "need 8 points at least"),
        ("fourier.py", "--size=61", "61 rows cannot be shared by 3 ranks"),
    ],
)
def test_a_size_that_does_not_fit_is_refused(run, name, argument, error):
    done = run("-n", 3, PROGRAMS / name, argument)
    assert done.returncode != 0
    assert error in done.stderr
