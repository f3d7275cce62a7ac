"""The end of a job: failing ranks, signals, and the launcher's own death."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import time
from pathlib import Path

import pytest

from tests.waiting import STAYS, expect_soon, waits_until

# Ranks write by os.write: a signal handler may interrupt print, which cannot be entered again.
RANK = (
    "import os, sys, time, signal; rank = int(os.environ['PMI_RANK'])\n"
    "def say(text): os.write(1, f'{text}\\n'.encode())\n"
)


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


def test_the_code_of_the_rank_that_fails_is_returned(run):
    done = run("-n", 4, "-c", RANK + f"rank == 2 and sys.exit(7); {STAYS}")
    assert done.returncode == 7
    assert done.stderr == "pscompy run: rank 2 exited with code 7; ending the others\n"


def test_a_signal_becomes_128_and_its_number(run):
    done = run("-n", 2, "-c", RANK + f"rank == 1 and os.kill(os.getpid(), 9); {STAYS}")
    assert done.returncode == 128 + 9
    assert done.stderr == "pscompy run: rank 1 was ended by SIGKILL; ending the others\n"


def test_what_the_failing_rank_said_comes_first(run):
    done = run("-n", 2, "-c", RANK + "rank == 1 and 1 / 0")
    lines = done.stderr.splitlines()
    assert lines[0].startswith("Traceback")
    assert "ZeroDivisionError" in lines[-2]
    assert lines[-1].startswith("pscompy run: rank 1 exited with code 1")


def test_a_rank_that_ignores_sigterm_is_killed(run, tmp_path):
    code = RANK + (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open(f'{tmp_path}/{{rank}}', 'w').close()\n"
        + waits_until(f"rank != 1 or len(os.listdir('{tmp_path}')) == 3")
        + "if rank == 1: sys.exit(3)\n"
        f"{STAYS}"
    )
    assert run("-n", 3, "-c", code).returncode == 3


def test_a_rank_may_clean_up_at_sigterm(run, tmp_path):
    code = RANK + (
        "def clean(*_): say(f'clean {rank}'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, clean)\n"
        f"open(f'{tmp_path}/{{rank}}', 'w').close()\n"
        + waits_until(f"rank != 1 or len(os.listdir('{tmp_path}')) == 3")
        + "if rank == 1: sys.exit(3)\n"
        f"{STAYS}"
    )
    done = run.patient()("-n", 3, "-c", code)
    assert sorted(done.stdout.splitlines()) == ["clean 0", "clean 2"]


def test_a_command_that_does_not_exist(run):
    places = {"PATH": "/usr/bin:/bin"}  # other folders of the user's PATH may not be readable
    done = run("-n", 2, "--", "no-such-command", env=places)
    assert done.returncode == 127
    assert done.stderr == ("pscompy run: cannot start no-such-command: No such file or directory\n")


def test_a_file_that_is_no_program(run, tmp_path):
    (tmp_path / "text").write_text("")
    done = run("--", tmp_path / "text")
    assert done.returncode == 126
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_signals_reach_all_ranks(run, name):
    code = RANK + (
        # A handler must not print, because it may interrupt a print.
        "def note(number, _):\n"
        "    os.write(1, f'{rank} {signal.Signals(number).name}\\n'.encode()); sys.exit()\n"
        f"signal.signal(signal.{name}, note)\n"
        "say('ready')\n"
        f"{STAYS}"
    )
    process = run.start("-n", 3, "-c", code)
    for _ in range(3):
        assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=100)
    assert sorted(out.splitlines()) == [f"{rank} {name}" for rank in range(3)]
    assert (process.returncode, err) == (0, "")


def test_ctrl_c_lets_every_rank_clean_up(run):
    code = RANK + (
        "try:\n"
        "    say('ready')\n"
        f"    {STAYS}\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(rank * 0.3)\n"  # the launcher waits for slow ranks
        "    say(f'clean {rank}')\n"
        "    raise\n"
    )
    process = run.patient().start("-n", 3, "-c", code)
    for _ in range(3):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=100)
    assert sorted(out.splitlines()) == ["clean 0", "clean 1", "clean 2"]
    assert process.returncode == 128 + signal.SIGINT


def test_a_second_ctrl_c_kills(run):
    code = RANK + (
        f"signal.signal(signal.SIGINT, lambda *_: say('caught'))\nsay('ready')\nwhile True: {STAYS}"
    )
    process = run.start("-n", 2, "-c", code)
    for _ in range(2):
        assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    for _ in range(2):
        assert process.stdout.readline() == "caught\n"
    time.sleep(0.3)  # within 0.2 s the launcher counts two signals as one
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=100) == 128 + signal.SIGKILL


def test_no_process_is_left_when_the_launcher_is_killed(run, tmp_path):
    # The shells start processes of their own, which must end, too.
    word = f"sleep-{tmp_path.name}-{os.getpid()}"
    script = f"(exec -a {word} sleep 300) & echo ready; wait"
    process = run.start("-n", 3, "--", "bash", "-c", script)
    for _ in range(3):
        assert process.stdout.readline() == "ready\n"
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


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_ctrl_c_at_a_terminal_is_one_signal_for_each_rank(run):
    code = RANK + (
        "def caught(*_): caughts.append(1); say(f'caught {rank}')\n"
        "caughts = []; signal.signal(signal.SIGINT, caught)\n"
        "say(f'ready {rank}')\n"
        + waits_until("caughts")
        + "time.sleep(1)\n"  # a second signal would arrive within this second
    )
    job = Terminal(run, "-n", "3", "-c", code)
    job.read_lines(3)
    job.type(b"\x03")
    code, text = job.end()
    assert code == 0
    assert [text.count(b"caught %d" % rank) for rank in range(3)] == [1, 1, 1]


def test_ctrl_z_stops_launcher_and_ranks(run):
    code = RANK + "print('pid', os.getpid(), flush=True)\n" + f"rank or sys.exit(input()); {STAYS}"
    job = Terminal(run, "-n", "2", "-c", code)
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
