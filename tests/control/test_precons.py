"""The cost of finding out whether enough descriptors are left."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from pscompy.control import descriptors
from pscompy.control.handshake.identity import make_identity
from pscompy.control.precons import Precons

COUNT = 100
OPEN = Path("/proc/self/fd")


@pytest.fixture
def opened(monkeypatch):
    """The descriptors that are opened to find out how many are left."""
    made = []
    eventfd = os.eventfd

    def counting(value: int, flags: int) -> int:
        made.append(eventfd(value, flags))
        return made[-1]

    monkeypatch.setattr(os, "eventfd", counting)
    return made


@pytest.fixture
def few(request):
    """The number of descriptors that this process may open after its limit is lowered."""
    count = getattr(request, "param", 40)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as gaps:
        made = [os.open("/dev/null", os.O_RDONLY) for _ in range(256)]  # no number below is free
        for descriptor in made[:-1]:
            gaps.callback(os.close, descriptor)
        os.close(made[-1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (made[-1] + count, limits[1]))
        yield count
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(not OPEN.exists(), reason="this system has no /proc/self/fd")
def test_descriptors_that_are_left_are_counted_not_opened(opened):
    assert descriptors.left(descriptors.limit() // 2)
    assert opened == []


@pytest.mark.parametrize("size", [0, 1], ids=["entries", "size"])
def test_the_last_descriptors_are_found(few, monkeypatch, size):
    """Whether the kernel reports the number of descriptors or not."""
    if not size:
        folder = SimpleNamespace(stat=lambda: SimpleNamespace(st_size=0), iterdir=OPEN.iterdir)
        monkeypatch.setattr(descriptors, "_OPEN", folder)
    assert descriptors.left(few)
    assert not descriptors.left(few + 1)


def test_descriptors_are_opened_if_they_cannot_be_counted(opened, monkeypatch):
    monkeypatch.setattr(descriptors, "_OPEN", Path("/nowhere"))
    assert descriptors.left(30)
    assert len(opened) == 30


@pytest.mark.parametrize("few", [5 * descriptors.CONNECTION], indirect=True)
def test_precons_share_the_descriptors_that_are_left(few):
    """Each precon that is coming up will need its own, so the last ones are promised once only."""
    precons = Precons(None, make_identity("here"))
    assert [precons.has_room_for(object()) for _ in range(8)] == [True] * 5 + [False] * 3


@pytest.mark.parametrize("few", [COUNT * descriptors.CONNECTION], indirect=True)
@pytest.mark.parametrize("folder", [OPEN, Path("/nowhere")], ids=["counted", "opened"])
def test_looking_for_descriptors_costs_what_the_precons_cost(few, folder, opened, monkeypatch):
    """Also if the precons take the last descriptors."""
    monkeypatch.setattr(descriptors, "_OPEN", folder)
    precons = Precons(None, make_identity("here"))
    assert all(precons.has_room_for(object()) for _ in range(COUNT))
    assert len(opened) <= 4 * descriptors.CONNECTION * COUNT
    assert not precons.has_room_for(object())
