"""`pscompy perf`: its output, its peers, and its check of the contents."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

import pscompy
from pscompy.cli import perf as perf_command
from pscompy.cli import perf_pair
from pscompy.cli.measure import LATENCY, STREAM, Job
from pscompy.cli.report import Report
from pscompy.cli.sampling import Sample

QUICK = ("--seconds", "0.01", "--sizes", "0,8,100k")


def perf(site, *arguments, before=(), code=0):
    ended = site.run("-m", "pscompy", *before, "perf", *arguments)
    assert ended.returncode == code, ended.stderr
    return ended


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_the_transport_that_was_asked_for(site, transport):
    ended = perf(site, *QUICK, "--transport", transport, "--validate", "--json")
    document = json.loads(ended.stdout)
    assert document["transport"] == transport
    assert document["validated"] == 3 * 16
    assert [row["size"] for row in document["results"]] == [0, 8, 102400]
    for row in document["results"]:
        assert row["one_way_us"] > 0
        assert row["messages_per_second"] > 0
        assert (row["size"] == 0) == (row["both_ways_megabytes_per_second"] == 0)
    assert "latency of 102400 bytes" in ended.stderr


def test_the_table(site):
    shown = perf(site, *QUICK, "--only", "latency,rate", "--window", "4").stdout
    assert re.search(r"^pscompy \S+ over \w+; Linux", shown)
    assert "4 messages in a window" in shown
    assert re.search(r"one way, us +messages/s$", shown, re.M)
    assert re.search(r"^ +100k +[\d.]+ +[\d.]+$", shown, re.M)


def test_a_wrong_argument_is_one_line(site):
    ended = perf(site, "--seconds", "-1", code=2)
    assert ended.stderr == (
        "pscompy perf: error: argument --seconds: '-1' is no time such as 0.5 or 200ms\n"
    )


def column_ends(line):
    """The end of each column; columns stand two spaces apart, and a heading may contain single
    spaces."""
    return [found.end() for found in re.finditer(r"\S+(?: \S+)*", line)]


def test_figures_stand_below_their_headings(site):
    ended = perf(site, *QUICK)
    heading, *rows = ended.stdout.splitlines()[3:]
    assert re.split("  +", heading.strip()) == [
        "size",
        "one way, us",
        "MB/s",
        "messages/s",
        "MB/s both ways",
    ]
    assert [column_ends(row) for row in rows] == [column_ends(heading)] * 3
    assert "perf: bandwidth and rate of 8 bytes" in ended.stderr


@pytest.mark.parametrize(
    "name",
    [
        "pipe",
        pytest.param(
            "mpi4py",
            marks=pytest.mark.skipif(
                find_spec("mpi4py") is None, reason="no mpi4py: pip install mpi4py mpich"
            ),
        ),
    ],
)
def test_against_another_library(site, name):
    document = json.loads(perf(site, *QUICK, "--against", name, "--json").stdout)
    for row in document["results"]:
        assert row[name]["one_way_us"] > 0
        assert row[name]["latency_ratio"] == pytest.approx(
            row[name]["one_way_us"] / row["one_way_us"]
        )
    shown = perf(site, *QUICK, "--against", name).stdout
    assert len(re.findall(rf"pscompy +{name} +x", shown)) == 4


def test_what_another_library_cannot_do_is_left_out(site):
    arguments = (*QUICK, "--only", "bidirectional", "--against", "pipe")
    assert re.search(r"^ +100k +[\d.]+ +- +-$", perf(site, *arguments).stdout, re.M)
    document = json.loads(perf(site, *arguments, "--json").stdout)
    assert all("pipe" not in row for row in document["results"])


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="no matplotlib: nothing to draw with")
def test_the_plot_has_a_line_for_each_library(site):
    perf(site, *QUICK, "--against", "pipe", "--plot", "curves.svg")
    drawn = (site.folder / "curves.svg").read_text()
    for word in ("pscompy", "pipe", "100k", "one way, us", "MB/s both ways"):
        assert f"<!-- {word} -->" in drawn


def test_listen_and_connect(site):
    listener = subprocess.Popen(
        [sys.executable, "-m", "pscompy", "perf", "--listen", "127.0.0.1"],
        cwd=pscompy.get_include(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = listener.stdout.readline().strip()
        for _ in range(2):  # the server takes one client after the other
            assert "one way, us" in perf(site, *QUICK, "--connect", address).stdout
    finally:
        listener.kill()
        listener.communicate()


def test_a_client_that_says_nothing_is_given_up():
    with pscompy.Session() as session, session.listen("127.0.0.1") as sock:
        session.connect(sock.address).open(60)
        with pytest.raises(pscompy.Timeout, match="not done within"):
            perf_pair.serve(sock.accept(60), 0.2)


@pytest.mark.parametrize(
    "command",
    [
        b"no JSON",
        b"[" * 5000,
        b"[]",
        b'{"test": "none", "size": 1, "count": 1, "window": 1}',
        b'{"test": "stream", "size": 1, "count": 1, "window": 1, "more": 1}',
        b'{"test": "stream", "size": -1, "count": 1, "window": 1}',
        b'{"test": "stream", "size": 1, "count": 1, "window": %d}' % (1 << 30),
        b'{"test": "validate", "size": %d}' % (1 << 59),
        b'{"test": "latency", "size": %d, "count": 1, "window": 1}' % (1 << 59),
    ],
)
def test_a_command_that_cannot_be_served_is_refused(command):
    with pscompy.Session() as session, session.listen("127.0.0.1") as sock:
        connection = session.connect(sock.address)
        connection.send(command, perf_pair.COMMAND)
        with pytest.raises(pscompy.ProtocolError, match=r"command|no memory for messages"):
            perf_pair.serve(sock.accept(60))


def test_the_other_process_does_not_end(monkeypatch):
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = children.read_text().split()

    def stop_the_other():
        with perf_command._own_peer({"SHUTDOWN_TIMEOUT": 1}):
            (child,) = {*children.read_text().split()} - {*before}
            os.kill(int(child), signal.SIGSTOP)
            monkeypatch.setattr(perf_command, "_UP_SECONDS", 0.1)

    with pytest.raises(pscompy.PscomError, match="the other process does not end"):
        stop_the_other()


def test_ranks_of_a_job(site):
    before = ("run", "-n", "3", "-m", "pscompy")
    document = json.loads(perf(site, *QUICK, "--json", before=before).stdout)
    assert [row["size"] for row in document["results"]] == [0, 8, 102400]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--transport", "fo"), 2, "no transport 'fo'"),
        (("--sizes", "8x"), 2, "'8x' is no list of sizes such as 8,64k,4M"),
        (("--sizes", "inf"), 2, "'inf' is no list of sizes such as 8,64k,4M"),
        (("--only", "speed"), 2, "'speed' is not some of latency,bandwidth,rate"),
        (("--plot", "curves.txt"), 2, "'curves.txt' does not end in .png, .svg or .pdf"),
        (("--window", "0"), 2, "'0' is not a positive number"),
        (("--window", "1048577"), 2, "'1048577' is more than 1048576"),
        (("--connect", "nonsense"), 1, "'nonsense' is no address"),
        (("--transport", "loop"), 1, "loop: connects a session with itself only"),
    ],
)
def test_what_cannot_be(site, arguments, code, message):
    said = perf(site, *arguments, code=code).stderr
    assert message in said
    assert said.count("\n") == 1


def test_wrong_contents_are_noticed():
    with pscompy.Session() as session, session.listen() as sock:
        connection = session.connect(sock.address)
        connection.open(60)
        other = sock.accept(60)
        for number in range(8):
            content = perf_pair._content(100, number)
            content[50] += number == 3
            connection.send(content)
        found = perf_pair._receive_checked(other, 100)
        assert found == "message 3 of 100 bytes: 100 arrived, wrong from byte 50 on"


def test_figures():
    there_and_back = Sample(Job(LATENCY, 8, 10, 1), (4e-3, 2e-3, 3e-3))
    assert there_and_back.one_way_us == pytest.approx(150)
    windows = Sample(Job(STREAM, 1000, 10, 5), (1e-3, 1e-3, 9e-3))
    assert windows.messages_per_second == pytest.approx(50_000)
    assert windows.megabytes_per_second == pytest.approx(50)
    other = Sample(Job(STREAM, 1000, 1, 5), (4e-4,))
    rows = {1000: {"rate": {"pscompy": windows, "pipe": other}}}
    report = Report("shm", 5, ("pscompy", "pipe"), ("rate",), rows)
    assert report.as_text().splitlines()[5].split() == ["1000", "50000", "12500", "4.00"]
