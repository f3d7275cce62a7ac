"""The end of a job: failing ranks, signals, and the launcher's own death."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.launch.ranks import await_ready, check_signal, notes, own_rank, say
from tests.waiting import expect_soon, state_of, stay

PATIENT = 100.0  # seconds that ranks get to clean up, enough for a slow machine

# ---- in a rank ----


def meet(folder, ranks):
    """Return when all ranks have come here."""
    open(f"{folder}/{own_rank()}", "w").close()
    expect_soon(lambda: len(os.listdir(folder)) == ranks)


# ---- in the test ----


@pytest.fixture
def folder(tmp_path):
    """An empty folder in which ranks leave files."""
    made = tmp_path / "signs"
    made.mkdir()
    return made


def children_with(word: str) -> list[int]:
    """Processes whose command line contains `word`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def test_the_code_of_the_rank_that_fails_is_returned(run, script):
    def fails():
        if own_rank() == 2:
            sys.exit(7)
        stay()

    done = run("-n", 4, script(fails))
    assert done.returncode == 7
    assert done.stderr.splitlines() == [
        "pscompy run: rank 2 exited with code 7; ending the others",
        "pscompy run: ranks 0-1, 3 were ended by SIGTERM",
        "pscompy run: rank 2 exited with code 7",
    ]


def test_a_signal_becomes_128_and_its_number(run, script):
    def kills_itself():
        if own_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        stay()

    done = run("-n", 2, script(kills_itself))
    assert done.returncode == 128 + 9
    assert done.stderr.splitlines() == [
        "pscompy run: rank 1 was ended by SIGKILL; ending the others",
        "pscompy run: rank 0 was ended by SIGTERM",
        "pscompy run: rank 1 was ended by SIGKILL",
    ]


def test_what_the_failing_rank_said_comes_first(run, script):
    def divides_by_zero():
        return own_rank() and 1 / 0

    done = run("-n", 2, script(divides_by_zero))
    lines = done.stderr.splitlines()
    assert lines[0].startswith("Traceback")
    ours = next(i for i, line in enumerate(lines) if line.startswith("pscompy run: "))
    assert "ZeroDivisionError" in lines[ours - 1]
    assert lines[ours].startswith("pscompy run: rank 1 exited with code 1")


def test_a_rank_that_ignores_sigterm_is_killed(run, script, folder):
    def ignores(folder):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        meet(folder, 3)
        if own_rank() == 1:
            sys.exit(3)
        stay()

    assert run("-n", 3, script(ignores, str(folder))).returncode == 3


def test_a_rank_may_clean_up_at_sigterm(run, script, folder):
    def cleans(folder):
        def clean(*_):
            say("clean", own_rank())
            sys.exit()

        signal.signal(signal.SIGTERM, clean)
        meet(folder, 3)
        if own_rank() == 1:
            sys.exit(3)
        stay()

    done = run.having(GRACE=PATIENT)("-n", 3, script(cleans, str(folder)))
    assert sorted(done.stdout.splitlines()) == ["clean 0", "clean 2"]


def test_a_command_that_does_not_exist(run):
    places = {"PATH": "/usr/bin:/bin"}  # other folders of the user's PATH may not be readable
    done = run("-n", 2, "--", "no-such-command", env=places)
    assert done.returncode == 127
    assert done.stderr == ("pscompy run: cannot start no-such-command: No such file or directory\n")


def test_too_many_ranks_for_the_descriptors(run):
    run.command = ("sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *run.command)
    done = run("-n", 100, "--", "true")
    assert done.returncode == 126
    assert re.search(r"cannot start true: no descriptor is left: .* 64 .*`ulimit -n`", done.stderr)


def test_a_file_that_is_no_program(run, tmp_path):
    (tmp_path / "text").write_text("")
    done = run("--", tmp_path / "text")
    assert done.returncode == 126
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize(
    ("name", "leave"),
    [
        ("SIGINT", ""),
        ("SIGTERM", ""),
        ("SIGUSR1", ""),
        ("SIGINT", "setpgrp"),
        ("SIGTERM", "setsid"),
    ],
)
def test_signals_reach_all_ranks(run, script, name, leave):
    check_signal(run.start("-n", 3, script(notes, name, leave)), 3, name)


def test_ctrl_c_lets_every_rank_clean_up(run, script, folder):
    """Each rank begins to clean up when the rank before it has ended."""

    def cleans_in_turn(folder):
        try:
            say(own_rank(), os.getpid())
            stay()
        except KeyboardInterrupt:
            expect_soon(Path(folder, str(own_rank())).exists)
            say("clean", own_rank())
            raise

    process = run.having(GRACE=PATIENT).start("-n", 3, script(cleans_in_turn, str(folder)))
    lines = sorted(process.stdout.readline() for _ in range(3))
    pids = dict(tuple(map(int, line.split())) for line in lines)
    process.send_signal(signal.SIGINT)
    for rank, pid in pids.items():
        (folder / str(rank)).touch()
        assert process.stdout.readline() == f"clean {rank}\n"
        expect_soon(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "the end of a rank")
    process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGINT


@pytest.mark.parametrize("leave", [False, True])
def test_a_second_ctrl_c_kills(run, script, leave):
    def catches(leave):
        if leave:
            os.setpgrp()
        signal.signal(signal.SIGINT, lambda *_: say("caught"))
        say("ready")
        stay()

    # Usually a signal that follows at once counts as a repetition of the first.
    process = run.having(_SAME=0.0).start("-n", 2, script(catches, leave))
    await_ready(process, 2)
    process.send_signal(signal.SIGINT)
    for _ in range(2):
        assert process.stdout.readline() == "caught\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=100) == 128 + signal.SIGKILL


def test_no_process_is_left_when_the_launcher_is_killed(run, tmp_path):
    # The shells start processes of their own, which must end, too.
    word = f"sleep-{tmp_path.name}-{os.getpid()}"
    script = f"(exec -a {word} sleep 300) & echo ready; wait"
    process = run.start("-n", 3, "--", "bash", "-c", script)
    await_ready(process, 3)
    expect_soon(lambda: len(children_with(word)) >= 6, "all processes running")
    process.kill()
    expect_soon(lambda: not children_with(word), "the end of all processes")


def test_no_process_is_left_when_the_job_has_ended(run, tmp_path):
    word = f"sleep-{tmp_path.name}-{os.getpid()}"
    done = run("-n", 2, "--", "bash", "-c", f"(exec -a {word} sleep 300) & echo $PMI_RANK")
    assert sorted(done.stdout.split()) == ["0", "1"]
    expect_soon(lambda: not children_with(word), "the end of all processes")


class Terminal:
    """A job in the foreground of a terminal of its own."""

    def __init__(self, launcher, *arguments):
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execve(launcher.command[0], [*launcher.command, *arguments], launcher.environ)
        self._text = b""

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def read_lines(self, count: int) -> list[bytes]:
        """Read until `count` lines have arrived; returns them."""
        while self._text.count(b"\n") < count:
            self._text += os.read(self._fd, 4096)
        return self._text.split(b"\n")[:count]

    def end(self) -> tuple[int, bytes]:
        """Read to the end; returns the exit code and all output."""
        with contextlib.suppress(OSError):  # reading the terminal fails when the job has ended
            while data := os.read(self._fd, 4096):
                self._text += data
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), self._text


def test_ctrl_c_at_a_terminal_is_one_signal_for_each_rank(run, script):
    """The launcher passes signals on in their order, so a second SIGINT would reach the ranks
    before SIGUSR1."""

    def counts():
        signal.signal(signal.SIGINT, lambda *_: say("caught", own_rank()))
        signal.signal(signal.SIGUSR1, lambda *_: sys.exit())
        say("ready")
        stay()

    job = Terminal(run, "-n", "3", str(script(counts)))
    job.read_lines(3)
    job.type(b"\x03")
    job.read_lines(6)
    os.kill(job.pid, signal.SIGUSR1)
    code, text = job.end()
    assert code == 0
    assert [text.count(b"caught %d" % rank) for rank in range(3)] == [1, 1, 1]


def test_ctrl_z_stops_launcher_and_ranks(run, script):
    def reads():
        say("pid", os.getpid())
        if own_rank() == 0:
            sys.exit(input())
        stay()

    job = Terminal(run, "-n", "2", str(script(reads)))
    ranks = [int(line.split()[1]) for line in job.read_lines(2)]
    job.type(b"\x1a")
    everybody = [job.pid, *ranks]
    expect_soon(lambda: all(state_of(pid) == "T" for pid in everybody), "the stop of all")
    os.kill(job.pid, signal.SIGCONT)
    expect_soon(lambda: not any(state_of(pid) == "T" for pid in everybody), "going on")
    job.type(b"bye\n")
    code, text = job.end()
    assert code == 1
    assert b"bye" in text
    assert b"rank 0 exited with code 1" in text
