"""`pscompy endpoint-model`: its output, its plots and its errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from pscompy.cli import plot
from pscompy.cli.endpoint_model import CATEGORIES, CONTRADICTIONS
from pscompy.cli.main import main

NAMES = [category.name for category in CATEGORIES]


def endpoints(capsys, *arguments, code=0):
    """Run the command; returns its output, or its error message."""
    try:
        ended = main(["endpoint-model", *map(str, arguments)])
    except SystemExit as exit_:
        ended = exit_.code
    assert ended == code
    printed = capsys.readouterr()
    return printed.err if code else printed.out


def documents(capsys, *arguments):
    return json.loads(endpoints(capsys, "--json", *arguments))


def test_json(capsys):
    rows = documents(capsys)
    assert [row["category"] for row in rows] == NAMES
    assert rows[1] == {
        "category": "2xDynamic",
        "threads": 16,
        "ranks": 1,
        "ctx": 1,
        "pd": 1,
        "mr": 16,
        "qp": 32,
        "cq": 32,
        "uar": 40,
        "uuar": 80,
        "used_uuar": 16,
        "percent_uuar": 31.25,
        "levels": {"1": 16},
        "exceeds": [],
        "percent_wasted": 80.0,
        "memory_bytes": (256 + 32 * 89) * 1024,
    }


def test_the_table_has_what_json_has(capsys):
    text = endpoints(capsys, "--threads", 32, "--ranks", 2)
    for row in documents(capsys, "--threads", 32, "--ranks", 2):
        counts = [row[key] for key in ("ctx", "pd", "mr", "qp", "cq", "uar", "uuar", "used_uuar")]
        pattern = " +".join([re.escape(row["category"]), *map(str, counts)])
        assert re.search(f"^{pattern} .* {row['memory_bytes'] / 2**20:.2f} MiB$", text, re.M)


def test_contradictions_are_printed_both_ways_with_the_reason(capsys):
    text = " ".join(endpoints(capsys).split())
    for it in CONTRADICTIONS:
        assert f"{it.about}: the paper says {it.stated}; here {it.counted}. {it.reason}" in text
    for word in ("345K", "354 KB", "907", "910", "1.64 MB", "3.03 MiB"):
        assert word in text


def test_categories_in_any_spelling(capsys):
    rows = documents(capsys, "--category", "static,shared-dynamic", "--category", "MPI Everywhere")
    assert [row["category"] for row in rows] == ["Static", "Shared Dynamic", "MPI everywhere"]
    assert rows[2]["percent_uuar"] == 100
    for name in NAMES:
        (row,) = documents(capsys, "--category", name)
        assert row["category"] == name


def test_uuars_of_a_context(capsys):
    (row,) = documents(capsys, "--category", "static", "--total-uuars", 6)
    assert (row["uar"], row["uuar"], row["used_uuar"]) == (3, 6, 5)
    (row,) = documents(capsys, "--category", "static", "--total-uuars=6", "--low-latency-uuars=5")
    assert (row["used_uuar"], row["levels"]) == (6, {"2": 5, "3": 11})


def test_limits_are_named(capsys):
    text = endpoints(capsys, "--threads", 257)
    said = "exceeds mlx5: 257 independent paths in a context, which can have 256"
    assert f"\nDynamic {said}\n" in text
    assert "exceeds" not in endpoints(capsys, "--threads", 128)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ranks", 3), "16 threads cannot be divided evenly among 3 ranks"),
        (("--threads", 0), "'0' is not a positive number"),
        (("--category", "dynamik"), "'dynamik' is not one of MPI everywhere, 2xDynamic, Dynamic"),
        (("--low-latency-uuars", 16), "there can be 0 to 15, all but one of 16"),
        (("--low-latency-uuars", -1), "'-1' is no number such as 0 or 4"),
        (("--total-uuars", 7), "a UAR has two, so the total is even"),
        (("--plot", "figures.txt"), "'figures.txt' does not end in .png, .svg or .pdf"),
    ],
)
def test_a_wrong_argument_is_one_line(capsys, arguments, message):
    said = endpoints(capsys, *arguments, code=2)
    assert message in said
    assert said.count("\n") == 1


def test_help_names_the_categories_and_the_source(capsys):
    text = endpoints(capsys, "--help")
    for word in (*NAMES, "Zambre", "MLX5_TOTAL_UUARS", "MLX5_NUM_LOW_LAT_UUARS"):
        assert word in text


def test_nothing_that_draws_is_imported_without_need():
    code = (
        "import sys; from pscompy.cli.main import main; main(['endpoint-model'])\n"
        "sys.exit('matplotlib' in sys.modules or 'pscompy.core' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=250)


# ---- plots ----

drawing = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="no matplotlib: nothing to draw with"
)


@drawing
def test_the_plot_has_the_figures_and_their_numbers(capsys, tmp_path):
    endpoints(capsys, "--plot", tmp_path / "figures.svg")
    drawn = re.findall(r"<!-- (.+?) -->", (tmp_path / "figures.svg").read_text())
    for words in ("Table I", "Figure 3", "Figure 12, left", "Figure 12, right", "Figure 14b"):
        assert any(text.startswith(words) for text in drawn)
    for text in (*NAMES, "345K", "288", "144", "80", "48", "108 %", "16.1", "1.16"):
        assert text in drawn


@drawing
@pytest.mark.parametrize("threads", [1, 3, 100])
def test_any_number_of_threads_is_drawn(capsys, tmp_path, threads):
    endpoints(capsys, "--threads", threads, "--plot", tmp_path / "figures.png")
    assert (tmp_path / "figures.png").read_bytes().startswith(b"\x89PNG")


@drawing
def test_a_folder_that_is_not_there(capsys, tmp_path):
    said = endpoints(capsys, "--plot", tmp_path / "none" / "figures.png", code=2)
    assert "No such file or directory" in said


def test_without_matplotlib_the_plot_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    said = endpoints(capsys, "--plot", "figures.png", code=1)
    assert said == "pscompy: error: matplotlib is not installed: pip install matplotlib\n"
