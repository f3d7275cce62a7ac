"""`./run bench`: its output, its remarks on what was left out, and the launches that count."""

import dataclasses
import functools
import importlib
import json
import math
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import pscompy
from pscompy.cli.measure import Job

ROOT = Path(__file__).parents[2]
GROUPS = os.environ.get("PSCOMPY_TEST_GROUPS", "shm-rate")  # with peers
if Path(pscompy.get_include()) != ROOT:
    pytest.skip("pscompy is installed without its source folder", allow_module_level=True)

from bench import launches, libraries, loops, peers, plots, rails, results, rounds  # noqa: E402
from bench.cases import README, chosen, collectives, groups, mpi, overlap  # noqa: E402
from bench.collectives import checked  # noqa: E402
from bench.native import NotMeasured, cores, run  # noqa: E402
from bench.rounds import Launched, Patience, Rounds  # noqa: E402
from bench.rows import TRIALS, Cell, Group  # noqa: E402


def bench(folder, *arguments, code=0):
    command = [sys.executable, "-m", "bench", *arguments]
    where = ["--folder", str(folder)] if folder else []
    ended = subprocess.run([*command, *where], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == code, ended.stderr
    return ended


# ---- with real measurements ---------------------------------------------------------------------


def test_groups_that_need_no_peer(tmp_path):
    names = ("shm-wake", "tcp-wake", "asyncio")
    ended = bench(tmp_path, "--quick", "--only", ",".join(names))
    assert "asyncio: round 1, streams" in ended.stderr
    table = (tmp_path / "table.md").read_text()
    for name in names:
        document = json.loads((tmp_path / f"{name}.json").read_text())
        assert document["missing"] == {}
        assert document["near_ns"] > 0
        for cell in document["cells"]:
            assert cell["medians"]["pscompy"] > 0
            assert f"| {cell['name']}, {cell['unit']} |" in table
        first = document["cells"][0]
        (against,) = first["against"]
        ratio = first["medians"]["pscompy"] / first["medians"][against]
        assert first["ratio"] == pytest.approx(ratio)
        assert document["title"] in ended.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)  # peers may have to be installed
def test_peers_are_measured_or_named(tmp_path):
    ended = bench(tmp_path, "--quick", "--only", GROUPS)
    assert "round 2" not in ended.stderr  # although other tests keep the machine busy
    for name in GROUPS.split(","):
        document = json.loads((tmp_path / f"{name}.json").read_text())
        for cell in document["cells"]:
            for peer in ("mpich", "openmpi"):
                assert (peer in cell["medians"]) != (peer in document["missing"])
        for peer, why in document["missing"].items():
            assert f"{name}: {peer} is left out: {why}" in ended.stderr
            assert f"{peer} is missing: {why}" in ended.stdout


def test_the_limits_of_the_machine():
    if len(set(cores())) == 1:
        pytest.skip("there is one core only")
    median, slow = run("line")
    assert 0 < median <= slow
    for test in ("shm", "tcp", "copy", "unix", "inet"):
        (seconds,) = run(test, 4096, 10)
        assert seconds > 0
    with pytest.raises(NotMeasured, match="usage"):
        run("nothing")


def test_threads_with_endpoints():
    """Threads in Python, and threads in C that use workers by the C interface."""
    launches = groups()["endpoints"].launches
    for sharing in ("pscompy", "shared", "single", "everywhere"):
        figures = launches[sharing](0.02)
        assert {cell.name for cell in groups()["endpoints"].cells} == {*figures}
        del figures["PSS per endpoint"]  # of `single` it may be nothing
        del figures["the longest wait of its thread for a lock"]  # on its own worker, too
        assert min(figures.values()) > 0


@pytest.mark.parametrize("name", ["all-to-all", "growth-threads", "growth-outstanding"])
def test_a_case_of_ranks_has_a_figure_for_each_row(name):
    group = groups()[name]
    figures = group.launches["pscompy"](0.01)
    assert set(figures) == {cell.name for cell in group.cells}
    assert min(figures.values()) > 0


def test_what_fails_in_a_rank_leaves_its_library_out():
    launch = launches.ranks(peers.python, "none", json.loads)
    with pytest.raises(NotMeasured, match="has ended with 1"):
        launch(0.0)


def test_the_greatest_figure_of_the_ranks_counts(tmp_path, monkeypatch):
    (tmp_path / "ranks_case.py").write_text(
        "def own_rank(ranks, seconds, factor):\n    return {'rank': ranks.rank * int(factor)}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    case = importlib.import_module("ranks_case").own_rank
    start = functools.partial(peers.pscompy, 3)
    assert launches.ranks(start, "pscompy", case, 10)(0.0) == {"rank": 20}


def test_ratios_are_of_figures_that_are_there():
    both = launches.together(lambda seconds: {"a": seconds}, lambda seconds: {"b": 4.0})
    ratios = {"a / b": ("a", "b"), "c / b": ("c", "b")}
    assert launches.with_ratios(both, ratios)(2.0) == {"a": 2.0, "b": 4.0, "a / b": 0.5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "speed"), "'speed' is not some of shm-latency,"),
        (("--launches", "0"), "'0' is not a positive number"),
    ],
)
def test_what_cannot_be(arguments, message):
    said = bench(None, *arguments, code=2).stderr
    assert message in said
    assert said.count("\n") == 1


def test_help_names_every_group():
    said = re.sub(r"-\s+", "-", bench(None, "--help").stdout)
    for name in groups():
        assert name in said


@pytest.mark.parametrize("fabric", ["tcp", "portals"])
def test_rails_between_two_namespaces(fabric):
    try:
        taken = rails.one_way((200, 200), 0.01, (8, 4 << 20), fabric)  # checks the lanes' number
    except NotMeasured as error:
        pytest.skip(str(error))
    assert set(taken) == {8, 4 << 20}
    assert min(taken.values()) > 0


def test_growth_in_one_picture(tmp_path):
    pytest.importorskip("matplotlib")
    bench(tmp_path, "--quick", "--only", "growth-waking,growth-tasks")
    for name in ("growth-waking", "growth-tasks"):
        document = json.loads((tmp_path / f"{name}.json").read_text())
        assert document["missing"] == {}
        for cell in document["cells"]:
            assert cell["medians"]["pscompy"] > 0
            assert (tmp_path / f"{name}.png").exists()
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.timeout(600)  # peers may have to be installed
def test_lists_against_peers(tmp_path):
    bench(tmp_path, "--quick", "--only", "growth-lists")
    document = json.loads((tmp_path / "growth-lists.json").read_text())
    for cell in document["cells"]:
        assert cell["medians"]["pscompy"] > 0
        assert cell["medians"]["multiprocessing"] > 0


def test_growth_stands_for_its_groups():
    known = dict.fromkeys(("growth-a", "shm-rate", "growth-b"))
    assert chosen("shm-rate,growth", known) == ("shm-rate", "growth-a", "growth-b")


# ---- messages that move while a process computes ------------------------------------------------


def skip_on_one_core():
    if len(set(cores())) == 1:
        pytest.skip("there is one core only")


def test_overlap_stands_for_its_groups():
    known = groups()
    assert chosen("overlap", known) == tuple(name for name in known if name.startswith("overlap-"))
    assert len(chosen("overlap", known)) == len(overlap.groups())


@pytest.mark.parametrize("group", overlap.groups(), ids=lambda group: group.name)
def test_each_cell_of_overlap_has_a_figure(group):
    skip_on_one_core()
    assert set(group.launches["pscompy"](0.005)) == {cell.name for cell in group.cells}


@pytest.mark.parametrize("group", collectives.groups(), ids=lambda group: group.name)
def test_each_cell_of_collectives_has_a_figure(group):
    figures = group.launches["pscompy"](0.001)
    assert set(figures) == {cell.name for cell in group.cells}
    assert min(figures.values()) > 0


@pytest.mark.parametrize("group", mpi.groups(), ids=lambda group: group.name)
def test_each_cell_of_mpi_has_a_figure(group):
    pytest.importorskip("mpi4py", reason="no mpi4py: pip install mpi4py")
    figures = group.launches["pscompy"](0.001)
    assert set(figures) == {cell.name for cell in group.cells}
    assert min(figures.values()) > 0


def test_a_wrong_result_of_a_collective_is_no_figure():
    ranks = libraries.Own(**{it.name: None for it in dataclasses.fields(libraries.Own)})
    world = types.SimpleNamespace(allreduce=lambda send, recv: recv.fill(3.0))
    ranks = dataclasses.replace(ranks, rank=0, size=2, world=world)
    with pytest.raises(SystemExit, match="allreduce of 8 bytes: rank 0 has got a wrong result"):
        checked(ranks, "allreduce", 8)
    world.allreduce = lambda send, recv: recv.fill(4.0)
    checked(ranks, "allreduce", 8)


def test_messages_while_one_side_is_away():
    """The computation lasts for as long as a busy machine may need to let the other side run. A
    message that is announced while its receiver is still in `send` may arrive before that. One run
    of several decides, because the other side may be kept from running for a whole computation."""
    skip_on_one_core()
    assert any(all_arrived("pscompy", loops.RECEIVER_AWAY) for _ in range(5))
    assert not all(all_arrived("TUPLEQ=0", loops.RECEIVER_AWAY) for _ in range(5))
    assert any(all_arrived("pscompy", loops.SENDER_AWAY) for _ in range(5))


def all_arrived(name, test):
    job = Job(test, 1 << 20, 3, 500_000)
    ends = {name: overlap.ENDS[name]}
    made = overlap.launches(ends, lambda pair, _: {"n": pair.run(job)})
    return made[name](0.0)["n"] == job.count


def test_a_count_is_better_if_it_is_higher(tmp_path, monkeypatch):
    panels = []
    monkeypatch.setattr(plots.plot, "check", lambda: None)
    monkeypatch.setattr(plots.plot, "draw", lambda path, title, drawn: panels.extend(drawn))
    cell = Cell("one way", TRIALS, 15, (), 8)
    for figure, passed in ((15.0, True), (14.0, False)):
        document = made([launched("pscompy", figure)], cell, ("pscompy",))
        assert document["cells"][0]["passed"] is passed
        plots.draw(tmp_path / "group.png", "a group", [document])
    assert [panel.share for panel in panels] == [True, True]


def test_the_table_in_the_readme(tmp_path):
    """The README has the output of one command, whose figures change and whose rows do not."""
    known = groups()
    assert chosen("readme", known) == tuple(README)
    for name in README:
        each = dict.fromkeys(known[name].launches, 9.0) | {"pscompy": 4.0}
        figures = [{cell.name: figure for cell in known[name].cells} for figure in each.values()]
        taken = [Launched(*it, 50.0, 0.0, 1.0) for it in zip(each, figures, strict=True)]
        results.write(tmp_path, results.document(known[name], Rounds(taken, {}), 50.0))
    table = results.readme_table(tmp_path, README)
    assert "| shm one way, 8 B, us | 4 | 9 | 2.2 |" in table
    assert "| shm bandwidth, 1 MiB, GB/s | 4 | 9 | 0.4 |" in table
    page = (ROOT / "README.md").read_text()
    assert len(rows_of(table)) == sum(map(len, README.values()))
    assert rows_of(page) == rows_of(table)
    assert "`./run bench --only readme`" in page


def rows_of(page):
    return re.findall(r"^\| .*?, (?:us|M/s|GB/s) \|", page, re.M)


# ---- launches that count, and the results made of them ------------------------------------------

CELL = Cell("one way", "us", 0.5)


def launched(library, figure, line_ns=50.0, others=0.0):
    return Launched(library, {"one way": figure}, line_ns, others, 1.0)


def made(launches, cell=CELL, libraries=("pscompy", "mpich", "openmpi"), missing=None):
    group = Group("group", "a group", (cell,), dict.fromkeys(libraries))
    return results.document(group, Rounds(launches, missing or {}), 50.0)


def test_launches_that_were_disturbed_do_not_count():
    document = made(
        [
            launched("pscompy", 4.0),
            launched("pscompy", 1.0, line_ns=260.0),
            launched("pscompy", 99.0, others=0.5),
            *(launched("mpich", figure) for figure in (10.0, 30.0, 20.0)),
            launched("openmpi", 16.0),
        ]
    )
    (cell,) = document["cells"]
    assert cell["medians"] == {"pscompy": 4.0, "mpich": 20.0, "openmpi": 16.0}
    assert cell["ratio"] == pytest.approx(4 / 16)
    assert cell["passed"] is True
    table = results.as_markdown(document)
    assert "Launches that count: pscompy 1, mpich 3, openmpi 1;" in table
    assert "dropped: 1 (cores far apart), 1 (machine busy)" in table
    assert "| one way, us | 4 | 20 | 16 | 0.25 | ≤ 0.5 | yes |" in table


def test_near_is_not_compared_with_far():
    far = [
        launched(name, figure, line_ns=260.0)
        for name, figure in [("pscompy", 9.0), ("mpich", 10.0)]
    ]
    document = made([*far, launched("mpich", 3.0)], libraries=("pscompy", "mpich"))
    assert document["cells"][0]["ratio"] == pytest.approx(0.9)
    table = results.as_markdown(document)
    assert "NOT ENOUGH of them count: these are figures of those on cores far apart" in table
    assert "| **no** |" in table


def test_what_cannot_be_compared_is_marked():
    busy = launched("pscompy", 9.0, others=0.5)
    document = made([busy, launched("mpich", 10.0)], libraries=("pscompy", "mpich"))
    assert "NOT ENOUGH of them count: these are figures of all" in results.as_markdown(document)


def test_the_mean_of_the_ratios_is_printed():
    cells = (CELL, Cell("other way", "us", 0.5))
    figures = {"pscompy": (8.0, 2.0), "mpich": (4.0, 4.0)}
    taken = [
        Launched(name, dict(zip([cell.name for cell in cells], both, strict=True)), 50.0, 0.0, 1.0)
        for name, both in figures.items()
    ]
    document = results.document(Group("group", "a group", cells, figures), Rounds(taken, {}), 50.0)
    assert "Geometric mean of the ratios: 1\n" in results.as_markdown(document)
    assert "Geometric" not in results.as_markdown(made(taken))


def test_the_choice_is_compared_with_each_protocol():
    group = groups()["tcp-choice"]
    assert [*group.launches] == ["pscompy", "eager", "rendezvous"]
    assert [cell.size for cell in group.cells][::28] == [1 << 10, 1 << 24]


@pytest.mark.parametrize(
    ("unit", "ours", "passed"), [("GB/s", 9.0, True), ("GB/s", 7.0, False), ("us", 9.0, False)]
)
def test_more_is_better_where_it_is_a_rate(unit, ours, passed):
    cell = Cell("one way", unit, 0.8)
    document = made([launched("pscompy", ours), launched("mpich", 10.0)], cell)
    assert document["cells"][0]["passed"] is passed


def test_a_bar_of_its_own():
    document = made([launched("pscompy", 3.0)], Cell("one way", "ms", 25.0, ()), ("pscompy",))
    assert document["cells"][0]["passed"] is True
    assert "≤ 25 ms" in results.as_markdown(document)


def test_a_missing_library_is_named_and_left_out(capfd):
    def cannot(seconds):
        raise NotMeasured("it cannot be installed")

    launches = {"pscompy": lambda seconds: {"one way": seconds}, "mpich": cannot}
    group = Group("group", "a group", (CELL,), launches)
    taken = rounds.measure(group, 2, 0.5, Patience(math.inf, 0.0))
    assert taken.missing == {"mpich": "it cannot be installed"}
    assert {launch.library for launch in taken.launched} == {"pscompy"}
    assert "group: mpich is left out: it cannot be installed" in capfd.readouterr().err
    document = results.document(group, taken, 50.0)
    assert document["cells"][0]["ratio"] is None
    assert "mpich is missing: it cannot be installed" in results.as_markdown(document)


def test_no_round_begins_after_the_bound():
    group = Group("group", "a group", (CELL,), {"pscompy": lambda seconds: {"one way": seconds}})
    taken = rounds.measure(group, 2, 0.5, Patience(math.inf, 0.0), bound=0.0)
    assert len(taken.launched) == 1


def test_a_group_replaces_its_own_figures_only(tmp_path):
    for name, figure in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        document = made([launched("pscompy", figure)], libraries=("pscompy",))
        results.write(tmp_path, {**document, "group": name, "title": f"group {name}"})
    table = (tmp_path / "table.md").read_text()
    assert table.count("## group") == 2
    assert "| one way, us | 3 |" in table
    assert "| one way, us | 2 |" in table
    assert "| one way, us | 1 |" not in table


def test_each_quantity_has_a_plot_of_its_own(tmp_path, monkeypatch):
    panels = []
    monkeypatch.setattr(plots.plot, "check", lambda: None)
    monkeypatch.setattr(plots.plot, "draw", lambda path, title, drawn: panels.extend(drawn))
    cells = tuple(
        Cell(f"{over}, {number}", "us", size=number, over=over)
        for over in ("posted", "open")
        for number in (1, 1000)
    )
    figures = {cell.name: float(place) for place, cell in enumerate(cells)}
    group = Group("group", "a group", (*cells, Cell("alone", "us")), {"pscompy": None})
    taken = Rounds([Launched("pscompy", figures, 50.0, 0.0, 1.0)])
    plots.draw(tmp_path / "group.png", "a group", [results.document(group, taken, 50.0)])
    assert {panel.over: panel.lines["pscompy"] for panel in panels} == {
        "posted": {1: 0.0, 1000: 1.0},
        "open": {1: 2.0, 1000: 3.0},
    }
