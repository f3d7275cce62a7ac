"""A far process that was forked is like one that was started."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pscompy.testing.process import Far, started
from tests.forked import Forked, begun


@pytest.fixture
def far() -> Iterator[Far]:
    process = Far(PSP_DEBUG="2")
    assert isinstance(process._process, Forked)
    yield process
    process.close()


def state(here):
    signals = [str(signal.getsignal(it)) for it in sorted(signal.valid_signals())]
    limits = [resource.getrlimit(it) for it in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "PYTEST_"))}
    opened = len(os.listdir("/proc/self/fd"))
    threads = threading.active_count(), os.listdir("/proc/self/task") == [str(os.getpid())]
    return signals, limits, environ, opened, threads, str(Path.cwd()), set(sys.path), os.getpgrp()


def test_it_is_like_one_that_was_started(far, monkeypatch, tmp_path):
    monkeypatch.setattr(Far, "begun", started)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PSP_RETRY", "3")
    new = Far(PSP_DEBUG="2")
    monkeypatch.setattr(Far, "begun", begun)
    forked = Far(PSP_DEBUG="2")
    for name, one, other in zip(
        ("signals", "limits", "environ", "opened", "threads", "folder", "path", "group"),
        forked(state),
        new(state),
        strict=True,
    ):
        assert one == other, name
    new.close()
    forked.close()


def test_it_has_random_numbers_of_its_own(far):
    other = Far()
    assert far(lambda here: random.random()) != other(lambda here: random.random())
    other.close()


def leave(here, code):
    import atexit

    atexit.register(lambda: os._exit(code))


def test_how_it_ends(far):
    assert far.alive
    far(leave, 7)
    far.hang_up()
    assert far.wait() == 7
    assert not far.alive


def test_how_it_is_killed(far):
    far.kill()
    far.kill()
    assert far.wait() == -signal.SIGKILL


@pytest.mark.parametrize("attempt", range(20))
def test_several_threads_wait_for_its_end(far, attempt):
    ends = []
    threads = [threading.Thread(target=lambda: ends.append(far.wait())) for _ in range(4)]
    for thread in threads:
        thread.start()
    far.kill()
    for thread in threads:
        thread.join()
    assert ends == [-signal.SIGKILL] * 4


def test_a_variable_that_acts_at_the_start_of_a_process_does(monkeypatch):
    monkeypatch.setenv("PYTHONWARNDEFAULTENCODING", "1")
    process = Far()
    assert process(lambda here: sys.flags.warn_default_encoding) == 1
    process.close()
