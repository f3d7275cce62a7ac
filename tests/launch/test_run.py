"""`pscompy run`: programs, output, input, environment."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pscompy
from tests.launch.ranks import await_ready, own_rank
from tests.names import ANOTHER_KEY
from tests.waiting import expect_soon


def test_the_number_of_a_module(run):
    program = "import pscompy; print(pscompy.World().module)"
    done = run("-n", 2, "--module", 7, "-c", program)
    assert (done.returncode, done.stdout) == (0, "7\n7\n")


def test_runs_a_script_with_its_arguments(run, script):
    def prints():
        print(own_rank(), sys.argv[1:])

    done = run("-n", 3, script(prints), "-n", "7", "--label")
    assert sorted(done.stdout.splitlines()) == [f"{r} ['-n', '7', '--label']" for r in range(3)]
    assert (done.returncode, done.stderr) == (0, "")


def test_runs_a_module(run, tmp_path):
    (tmp_path / "some_module.py").write_text("import sys; print(__name__, sys.argv[1:])")
    done = run("-n", 2, "-m", "some_module", "--np", "x", cwd=tmp_path)
    assert done.stdout == "__main__ ['--np', 'x']\n" * 2


def test_runs_code_under_the_same_interpreter(run):
    done = run("--np=2", "-c", "import sys; print(sys.executable)")
    assert done.stdout == f"{sys.executable}\n" * 2


def test_runs_any_command(run):
    done = run("-n", 2, "--", "sh", "-c", "echo $PMI_RANK of $PMI_SIZE $0", "--label")
    assert sorted(done.stdout.splitlines()) == ["0 of 2 --label", "1 of 2 --label"]


def test_one_rank_by_default(run):
    assert run("-c", "import os; print(os.environ['PMI_SIZE'])").stdout == "1\n"


def test_label_stands_before_every_line(run):
    code = "import sys; print('a\\n\\nb'); sys.stderr.write('e')"
    done = run("-n", 11, "--label", "-c", code)
    for rank in range(11):
        mine = [line for line in done.stdout.splitlines() if line.startswith(f"[{rank:2}] ")]
        assert mine == [f"[{rank:2}] a", f"[{rank:2}] ", f"[{rank:2}] b"]
    assert sorted(done.stderr.splitlines()) == [f"[{rank:2}] e" for rank in range(11)]


def test_lines_stay_whole_when_all_ranks_print_at_once(run, script):
    def writes_parts():
        for i in range(200):
            for part in (f"<{own_rank()}:{i}:", "x" * 700, ">\n"):
                sys.stdout.write(part)
                sys.stdout.flush()

    lines = run("-n", 6, script(writes_parts)).stdout.splitlines()
    matches = [re.fullmatch(r"<(\d):(\d+):x{700}>", line) for line in lines]
    assert all(matches)
    assert len(lines) == 6 * 200
    for rank in "012345":  # the lines of each rank are in order
        assert [m[2] for m in matches if m[1] == rank] == [str(i) for i in range(200)]


def test_long_lines_stay_whole_when_both_streams_are_one_file(run, script):
    def prints():
        for _ in range(20):
            print("o" * 30000, flush=True)
            print("e" * 100, file=sys.stderr, flush=True)

    process = subprocess.run(
        [*run.command, "-n", "3", script(prints)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
        check=True,
    )
    assert sorted(map(len, process.stdout.splitlines())) == [100] * 60 + [30000] * 60
    assert all(len(set(line)) == 1 for line in process.stdout.splitlines())


def test_output_of_one_rank_is_passed_on_byte_by_byte(run):
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 999 + b'no newline')"
    process = subprocess.run(
        [*run.command, "-c", code], stdout=subprocess.PIPE, timeout=250, check=True
    )
    assert process.stdout == bytes(range(256)) * 999 + b"no newline"


def test_unfinished_lines_of_two_ranks_are_kept_apart(run):
    code = "import os; print('rank', os.environ['PMI_RANK'], end='')"
    done = run("-n", 2, "-c", code)
    assert sorted(done.stdout.splitlines()) == ["rank 0", "rank 1"]
    assert not done.stdout.endswith("\n")


def test_a_reader_that_goes_away_ends_the_job(run):
    process = run.start("-n", 2, "-c", "while True: print('x' * 100)")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=100) != 0


@pytest.mark.parametrize("stays", [0, 100])
@pytest.mark.parametrize("ranks", [1, 3])
def test_output_that_cannot_be_written_ends_the_job(run, ranks, stays):
    code = f"import time; print('x', flush=True); time.sleep({stays})"
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*run.command, "-n", str(ranks), "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=90,
        )
    assert ended.returncode == 1
    told = "pscompy run: the standard output cannot be written: No space left on device"
    assert ended.stderr.startswith(told)


def test_an_error_about_keys_says_that_the_job_has_one_of_its_own(run, script):
    def calls_with_another_key(key):
        sessions = pscompy.Session(), pscompy.Session(config={"KEY": key})
        os.environ["PSP_KEY"] = key.replace("b", "c")
        sessions += (pscompy.Session(),)
        for one, other in (sessions[:2], sessions[1::-1], sessions[2:0:-1]):
            try:
                one.connect(other.listen("127.0.0.1").address).open(60)
            except pscompy.AuthError as error:
                print(str(error).partition("this side's comes from ")[2].partition(":")[0])

    done = run(script(calls_with_another_key, ANOTHER_KEY))
    assert done.stdout.splitlines() == [
        "PSP_KEY, which `pscompy run` has made for this job",
        "PSP_KEY (config)",
        "PSP_KEY (environment)",
    ], done.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM"])
def test_a_signal_that_is_ignored_from_the_start_stays_ignored(run, script, tmp_path, name):
    """As SIGHUP under nohup, and SIGINT and SIGQUIT in the background of a script."""

    def waits(file):
        print("ready", flush=True)
        expect_soon(Path(file).exists)

    number = getattr(signal, name)
    job = subprocess.Popen(
        [*run.command, "-n", "2", script(waits, str(tmp_path / "go"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN),
    )
    await_ready(job, 2)
    for _ in range(3):
        job.send_signal(number)
        job.send_signal(signal.SIGCONT)  # one that is handled, after which the other one was, too
    (tmp_path / "go").touch()
    out, err = job.communicate(timeout=100)
    assert (job.returncode, out, err) == (0, "", "")


def test_a_slow_reader_does_not_stop_ranks_that_are_silent(run, script, tmp_path):
    def prints(file):
        if own_rank() == 0:
            print("x" * 10_000_000)
        else:
            open(file, "w").close()

    process = run.start("-n", 2, script(prints, str(tmp_path / "done")))
    expect_soon((tmp_path / "done").exists, "the end of rank 1")
    assert process.poll() is None
    assert len(process.stdout.read()) == 10_000_001


def test_stdin_goes_to_rank_0(run):
    code = "import os, sys; print(os.environ['PMI_RANK'], repr(sys.stdin.read()))"
    done = run("-n", 3, "-c", code, input="two\nlines\n")
    assert sorted(done.stdout.splitlines()) == [r"0 'two\nlines\n'", "1 ''", "2 ''"]


def test_what_is_typed_at_a_terminal_goes_to_rank_0(run, script):
    def reads():
        print(own_rank(), own_rank() == 0 and input())

    ours, theirs = pty.openpty()
    process = run.start("-n", 2, script(reads), stdin=theirs)
    os.close(theirs)
    os.write(ours, b"typed\n")
    out, _ = process.communicate(timeout=100)
    os.close(ours)
    assert sorted(out.splitlines()) == ["0 typed", "1 False"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- 2>&-"])
def test_a_closed_standard_file_is_an_empty_one(run, closed):
    code = "import sys; print(repr(sys.stdin.read())); print('e', file=sys.stderr)"
    command = shlex.join([*run.command, "-n", "2", "-c", code])
    done = subprocess.run(
        ["sh", "-c", f"{command} {closed}"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=run.environ,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout == ("" if closed == ">&-" else "''\n''\n")
    assert done.stderr == ("" if "2>&-" in closed else "e\ne\n")


def test_every_job_has_its_own_key_that_its_ranks_share(run):
    code = "import os; print(os.environ['PSP_KEY'])"
    first, second = (run("-n", 3, "-c", code).stdout.split() for _ in range(2))
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]
    assert len(first[0]) >= 32


@pytest.mark.parametrize("name", ["PSP_KEY", "PSP_KEY_FILE"])
def test_a_key_that_is_set_is_kept(run, name):
    code = "import os; print(os.environ.get('PSP_KEY'), os.environ.get('PSP_KEY_FILE'))"
    expected = {"PSP_KEY": "mine None\n", "PSP_KEY_FILE": "None mine\n"}[name]
    assert run("-c", code, env={name: "mine"}).stdout == expected
    assert run("--env", f"{name}=mine", "-c", code).stdout == expected


def test_another_launcher_s_variables_do_not_reach_the_ranks(run):
    code = "import os; print([k for k in sorted(os.environ) if k.startswith('PMI')])"
    done = run("-c", code, env={"PMI_PORT": "host:1", "PMI_ID": "5", "PMIX_RANK": "3"})
    assert done.stdout == "['PMI_FD', 'PMI_RANK', 'PMI_SIZE']\n"


def test_32_ranks_start(run):
    done = run("-n", 32, "-c", "import os; print(os.environ['PMI_RANK'])")
    assert sorted(map(int, done.stdout.split())) == list(range(32))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "no program is given"),
        (["-n", "3"], "no program is given"),
        (["--"], "no program is given"),
        (["-n", "0", "-c", "1"], "'0' is not a positive number"),
        (["-n", "x", "-c", "1"], "'x' is not a positive number"),
        (["-m"], "-m needs an argument"),
        (["nowhere.py"], "no such file: nowhere.py"),
        (["/bin/sh"], "/bin/sh is no Python program (any other command: -- /bin/sh)"),
        (["--env", "NAME", "-c", "1"], "'NAME' is not KEY=VALUE"),
        (["--lab", "-c", "1"], "--lab"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(run, arguments, complaint):
    done = run(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_help_tells_all_forms(run):
    done = run("--help")
    assert done.returncode == 0
    assert all(text in done.stdout for text in ("app.py", "-m module", "-c code", "-- command"))
