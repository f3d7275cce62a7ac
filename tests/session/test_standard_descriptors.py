"""Processes that start without some of the descriptors 0, 1 and 2, as daemons do."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.jobs import ROOT, Launcher
from tests.waiting import expect_soon

SUBSETS = [c for n in (1, 2, 3) for c in itertools.combinations(range(3), n)]


def report(path: str, what: object) -> None:
    """Write a result to a file."""
    with open(path, "w") as file:
        json.dump(what, file)


def standard(pid: int | str = "self") -> list[str]:
    """The files of the descriptors 0, 1 and 2 of a process."""
    return [os.readlink(f"/proc/{pid}/fd/{n}") for n in range(3)]


def opens_sessions(path: str) -> None:
    import traceback

    try:
        import pscompy

        with pscompy.Session() as a, pscompy.Session() as b, a.listen() as listener:
            connection = b.connect(listener.address)
            connection.send(b"hello", timeout=60)
            accepted = listener.accept(timeout=60)
            assert accepted.recv(timeout=60) == b"hello"
            print("printed")
            report(path, standard())
    except BaseException:
        report(path, traceback.format_exc())


def opens_a_world(path: str) -> None:
    import traceback

    try:
        import pscompy

        with pscompy.World() as world:
            world.send(b"x", dest=0)
            assert world.recv(timeout=60) == b"x"
            report(path, standard())
    except BaseException:
        report(path, traceback.format_exc())


def runs_a_child(path: str) -> None:
    """A program that the process starts has the descriptors, too."""
    import subprocess

    import pscompy

    with pscompy.Session():
        code = "import os, sys; os.write(2, b'e'); os.write(1, b'o'); sys.exit(len(os.read(0, 9)))"
        report(path, subprocess.run([sys.executable, "-c", code], check=False).returncode)


def reports_its_launcher(path: str) -> None:
    report(path, standard(os.getppid()))


def started(
    command: Sequence[object], closed: Sequence[int], environ: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start a command without the descriptors `closed`; the others are /dev/zero."""
    words = " ".join(f"{n}{'<&-' if n in closed else '<>/dev/zero'}" for n in range(3))
    return subprocess.Popen(
        ["sh", "-c", f'exec "$@" {words}', "sh", *map(str, command)], env=environ
    )


def expected(closed: Sequence[int]) -> list[str]:
    return ["/dev/null" if n in closed else "/dev/zero" for n in range(3)]


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return tmp_path / "result"


@pytest.mark.parametrize("closed", SUBSETS, ids=str)
@pytest.mark.parametrize("main", [opens_sessions, opens_a_world])
def test_the_first_session_opens_what_is_closed(
    script: Callable[..., Path],
    run: Launcher,
    result: Path,
    main: Callable[[str], None],
    closed: tuple[int, ...],
) -> None:
    """Also with a log of all that happens."""
    environ = {**run.environ, "PSP_DEBUG": "6"}
    process = started([sys.executable, script(main, str(result))], closed, environ)
    assert process.wait(60) == 0
    assert json.loads(result.read_text()) == expected(closed)


def test_children_have_them_too(script: Callable[..., Path], run: Launcher, result: Path) -> None:
    process = started([sys.executable, script(runs_a_child, str(result))], (0, 1, 2), run.environ)
    assert process.wait(60) == 0
    assert json.loads(result.read_text()) == 0


def is_overtaken(path: str) -> None:
    """Open a file at descriptor 0 after it was found closed, as another thread may do."""
    from pscompy.config.standard_files import open_standard_files

    opened: list[int] = []

    def overtake(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and arguments[0] == os.devnull and not opened:
            opened.append(-1)  # before the file, whose opening is an event, too
            opened.append(os.open("/dev/zero", os.O_RDONLY))

    sys.addaudithook(overtake)
    open_standard_files()
    report(path, standard())


def test_no_file_of_another_thread_is_replaced(
    script: Callable[..., Path], run: Launcher, result: Path
) -> None:
    process = started([sys.executable, script(is_overtaken, str(result))], (0, 2), run.environ)
    assert process.wait(60) == 0
    assert json.loads(result.read_text()) == ["/dev/zero", "/dev/zero", "/dev/null"]


@pytest.mark.parametrize("closed", [(0,), (1, 2), (0, 1, 2)], ids=str)
def test_the_launcher_opens_them(
    script: Callable[..., Path], run: Launcher, result: Path, closed: tuple[int, ...]
) -> None:
    program = script(reports_its_launcher, str(result))
    process = started([*run.command, "-n", 1, program], closed, run.environ)
    assert process.wait(60) == 0
    assert json.loads(result.read_text()) == expected(closed)


@pytest.mark.parametrize("closed", [(0,), (1, 2), (0, 1, 2)], ids=str)
def test_a_gateway_opens_them(run: Launcher, closed: tuple[int, ...]) -> None:
    environ = {**run.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'gateway'}"}
    gateway = [sys.executable, "-m", "pscompy_gateway"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    process = started([*gateway, "run", f"tcp@{place}"], closed, environ)

    def serves() -> bool:
        assert process.poll() is None
        asked = subprocess.run(
            [*gateway, "status", place], env=environ, capture_output=True, check=False
        )
        return asked.returncode == 0

    try:
        expect_soon(serves, "the gateway serves")
        assert standard(process.pid) == expected(closed)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
