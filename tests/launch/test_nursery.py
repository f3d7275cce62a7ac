"""Ranks that are forked from one Python: they cannot tell, and neither can the launcher's user."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import STAYS, expect_soon

PARENT = f"import os, time; os.write(1, b'%d\\n' % os.getppid()); {STAYS}"

STATE = """\
import atexit, gc, json, os, signal, stat, sys, threading, warnings

def file(fd):
    try:
        return stat.S_IFMT(os.fstat(fd).st_mode), os.get_inheritable(fd)
    except OSError:
        return None

def stream(it):
    return [it.fileno(), it.encoding, it.errors, it.line_buffering, it.isatty(), it.name, it.mode]

main = sys.modules["__main__"]
private = {"PMI_RANK", "MPI_LOCALRANKID", "PSP_KEY", "PMI_FD"}
state = {
    "argv": sys.argv,
    "orig_argv": sys.orig_argv[1:],
    "executable": sys.executable,
    "path": sys.path,
    "flags": str(sys.flags),
    "main": [main.__name__, getattr(main, "__file__", None), main.__spec__ and main.__spec__.name],
    "loader": type(main.__loader__).__name__,
    "environ": {k: v for k, v in sorted(os.environ.items()) if k not in private},
    "pmi": file(int(os.environ["PMI_FD"])),
    "streams": [stream(it) for it in (sys.stdin, sys.stdout, sys.stderr)],
    "descriptors": len(os.listdir("/proc/self/fd")),
    "signals": [str(signal.getsignal(n)).partition(" at ")[0] for n in signal.valid_signals()],
    "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    "threads": [it.name for it in threading.enumerate()],
    "handlers": atexit._ncallbacks() > 9,
    "cwd": os.getcwd(),
    "collecting": gc.isenabled(),
    "filters": warnings.filters,
    "site": "sitecustomize" in sys.modules,
    "hook": sys.excepthook is sys.__excepthook__,
    "group": os.getpgid(0) == os.getpgid(os.getppid()),
}
told = [int(os.environ["PMI_RANK"]), os.getppid(), state]
os.write(1, (json.dumps(told, default=str) + "\\n").encode())
"""


@pytest.fixture(autouse=True)
def one_processor():
    """So that two ranks outnumber the processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


def parents(run, *arguments, **kwargs):
    """What each rank told, by rank; and whether they have one parent that is not the launcher."""
    process = run.start("-n", 3, *arguments, **kwargs)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (0, "")
    told = sorted(json.loads(line) for line in out.splitlines())
    assert [rank for rank, _, _ in told] == [0, 1, 2]
    (parent,) = {parent for _, parent, _ in told}
    return [state for _, _, state in told], parent != process.pid


@pytest.mark.parametrize("form", ["script", "-m", "-c"])
def test_a_rank_is_as_any_python_that_was_just_started(run, tmp_path, form):
    (tmp_path / "program.py").write_text(STATE)
    command = {
        "script": [str(tmp_path / "program.py"), "-x", "y"],
        "-m": ["-m", "program", "-x", "y"],
        "-c": ["-c", STATE, "-x", "y"],
    }[form]
    forked, together = parents(run, *command, cwd=tmp_path)
    alone, apart = parents(run, "--", sys.executable, *command, cwd=tmp_path)
    assert together
    assert not apart
    for one, other in zip(forked, alone, strict=True):
        assert one == other


def test_errors_look_the_same(run, script):
    path = script(
        "import os, signal\ndef fail(): raise KeyError('x')\n"
        "if os.environ['PMI_RANK'] == '1': fail()\n"
        "signal.pause()"  # until the launcher ends it, which it says
    )
    forked = run("-n", 2, path)
    assert forked.stderr == run("-n", 2, "--", sys.executable, path).stderr
    assert forked.stderr.splitlines()[2].strip() == "if os.environ['PMI_RANK'] == '1': fail()"


def test_each_rank_ends_in_its_own_way(run, script):
    path = script(
        "import atexit, os, sys, signal\n"
        "rank = int(os.environ['PMI_RANK'])\n"
        "atexit.register(lambda: os.write(1, f'bye {rank}\\n'.encode()))\n"
        "if rank == int(sys.argv[1]): eval(sys.argv[2])\n"
    )
    done = run("-n", 3, path, 9, "0")
    assert sorted(done.stdout.splitlines()) == ["bye 0", "bye 1", "bye 2"]
    assert (done.returncode, done.stderr) == (0, "")
    assert run("-n", 3, path, 1, "sys.exit(7)").returncode == 7
    assert run("-n", 3, path, 2, "os._exit(8)").returncode == 8
    assert run("-n", 3, path, 0, "os.kill(os.getpid(), signal.SIGKILL)").returncode == 128 + 9


def test_a_module_beside_the_program_comes_before_all_others(run, tmp_path):
    (tmp_path / "program.py").write_text(STATE.replace('"cwd"', '"mine": heapq.mine, "cwd"'))
    (tmp_path / "heapq.py").write_text("mine = 'mine'")
    text = (tmp_path / "program.py").read_text()
    (tmp_path / "program.py").write_text("import heapq\n" + text)
    told, together = parents(run, str(tmp_path / "program.py"))
    assert not together
    assert [state["mine"] for state in told] == ["mine"] * 3


def test_a_sitecustomize_runs_in_every_rank(run, tmp_path, script):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import os; os.write(1, f'custom {os.environ.get(\"PMI_RANK\")}\\n'.encode())"
    )
    path = script(
        "import sys; assert 'site/sitecustomize' in sys.modules['sitecustomize'].__file__"
    )
    places = f"{tmp_path / 'site'}{os.pathsep}{run.environ['PYTHONPATH']}"
    done = run("-n", 3, path, env={"PYTHONPATH": places})
    assert sorted(done.stdout.split()[1::2]) == ["0", "1", "2", "None"]  # and in the launcher
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_rank_starts_knows_nothing_of_it(run, script):
    path = script(
        "import os, subprocess, sys\n"
        "code = 'import os, sys; print(sorted(k for k in os.environ if k[:4] == \"PSP_\"),'\n"
        'code += \' "launch/hook" in str(sys.modules.get("sitecustomize")))\'\n'
        "subprocess.run([sys.executable, '-c', code], check=True)\n"
    )
    done = run("-n", 2, path)
    assert done.stdout == "['PSP_KEY'] False\n" * 2


def test_ranks_that_have_another_pscompy_start_by_themselves(run, script, tmp_path):
    """It knows nothing of nurseries; and the program runs as often as there are ranks."""
    (tmp_path / "other" / "pscompy").mkdir(parents=True)
    (tmp_path / "other" / "pscompy" / "__init__.py").write_text("")
    path = script("import os, pscompy; os.write(1, pscompy.__file__.encode() + b'\\n')")
    done = run("-n", 2, "--env", f"PYTHONPATH={tmp_path / 'other'}", path)
    assert done.stdout == f"{tmp_path / 'other' / 'pscompy' / '__init__.py'}\n" * 2
    assert (done.returncode, done.stderr) == (0, "")


def test_who_asks_is_told_why_there_is_none(run, tmp_path):
    (tmp_path / "program.py").write_text("import heapq")
    (tmp_path / "heapq.py").write_text("")
    silent = run("-n", 3, tmp_path / "program.py")
    assert (silent.returncode, silent.stderr) == (0, "")
    (line,) = run("-n", 3, tmp_path / "program.py", env={"PSP_DEBUG": "3"}).stderr.splitlines()
    assert line.endswith(
        f"each rank starts a Python of its own: {tmp_path} has a module that is named as one of"
        " them: heapq"
    )


THREADED = """\
import os, socket, sys, threading
wait = threading.Event()
threading.Thread(target=wait.wait, daemon=True).start()
sys.path.insert(0, "/hook")
os.environ["PYTHONPATH"] = "/hook"
from pscompy.launch.cradle import serve
serve(0, set(sys.modules))
"""


def test_a_process_with_threads_has_no_ranks(run):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", THREADED],
            env={**run.environ, "PSP_NURSERY": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
        )
        ours.settimeout(100)
        ours.send(b"/nowhere")
        assert b"threads" in ours.recv(100)
        assert process.wait(100) == 0


def test_the_job_ends_with_its_nursery(run, script):
    path = script(PARENT)
    process = run.start("-n", 3, path)
    nurseries = {int(process.stdout.readline()) for _ in range(3)}
    (nursery,) = nurseries - {process.pid}
    os.kill(nursery, signal.SIGKILL)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGKILL
    assert "was ended by SIGKILL" in err


def test_the_nursery_ends_with_its_launcher(run, script):
    path = script(PARENT)
    process = run.start("-n", 3, path)
    (nursery,) = {int(process.stdout.readline()) for _ in range(3)}
    process.kill()
    expect_soon(lambda: has_ended(nursery), "the end of the nursery")


def has_ended(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
