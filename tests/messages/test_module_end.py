"""Objects of the extension that outlive its module: at the interpreter's exit, and when the
collector frees them together with the module, whose state it clears first."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.messages.conftest import Pair
from tests.program import program

KINDS = (
    *("persistent", "started", "receive", "ended", "awaited", "event", "lent", "message"),
    *("sleeper", "communicator", "memory"),
)


def make(kind: str, pair: Pair, module: Any) -> object:
    """An object of one kind, over the two ends of a connection."""
    worker = pair.sides[0].worker
    if kind in ("ended", "awaited"):
        request = pair.right.irecv()
        pair.wait(pair.left.isend(b"x"), request)
        return request.__await__() if kind == "awaited" else request
    if kind in ("persistent", "started"):
        request = pair.right.recv_init(bytearray(1))
        if kind == "started":
            request.start()
        return request
    if kind == "message":
        pair.left.send(b"x")
    if kind == "communicator":
        communicator = module.Communicator()
        communicator._bind(worker, 0, 1)
        return communicator
    makers: dict[str, Callable[[], object]] = {
        "receive": pair.right.irecv,
        "event": worker.event,
        "lent": lambda: pair.left.isend(worker.empty(8, "u1"), 0, True),
        "message": pair.right.mprobe,
        "sleeper": worker.sleeper,
        "memory": lambda: worker.allocate(100),
    }
    return makers[kind]()


def outlive(kind: str, close: bool) -> None:
    """Make an object of a second module object, and leave both, and the worker, to the collector
    as one cycle."""
    import gc
    import importlib.util

    from pscompy.api.c import _binding
    from pscompy.api.request import Status
    from pscompy.core import lib
    from tests.messages import conftest

    spec: Any = importlib.util.spec_from_file_location(_binding.__name__, _binding.__file__)
    second: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(second)
    gc.collect()  # so that the module is older than the objects, and cleared before them
    second.bind(lib.psc_api_address(), Status)
    conftest._binding = second
    members = {"name": "?", "_exception": conftest.Peer._exception}
    conftest.Peer = type("Peer", (second.Connection,), members)  # type: ignore[misc]
    pair = conftest.make_pair("loop")
    kept = [make(kind, pair, second), pair, second]
    kept.append(kept)
    if close:
        pair.close()
    del second, kept, pair, spec, conftest._binding, conftest.Peer
    for _ in range(3):
        gc.collect()
    print("collected")


@pytest.mark.parametrize("close", [True, False], ids=["closed", "open"])
@pytest.mark.parametrize("kind", KINDS)
def test_collected_with_the_module(kind: str, close: bool) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", program(outlive, kind, close)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "collected\n", "")


def left_in_globals(close: bool) -> None:
    """Requests beside a function, which keeps the module's globals until the last moment."""
    import pscompy

    world = pscompy.World()
    left = [world.recv_init(bytearray(8), source=0), world.irecv(source=0), world.irecv_obj()]
    left.append(world.isend(b"x", dest=0))
    left[0].start()
    globals().update(left=left, world=world, function=lambda: left)
    if close:
        world.close()
    print("end")


@pytest.mark.parametrize("close", [True, False], ids=["closed", "open"])
def test_left_at_the_exit(close: bool) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", program(left_in_globals, close)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert (ended.returncode, ended.stdout) == (0, "end\n"), ended.stderr


def test_the_collector_sees_what_a_request_keeps(loop_pair: Pair) -> None:
    lent = loop_pair.sides[0].worker.empty(8, "u1")
    plain, stretched = np.zeros(8, "u1"), np.zeros(16, "u1")[::2]
    for buffer, lend in ((lent, True), (plain, False), (stretched, False), (bytearray(8), False)):
        requests = [loop_pair.left.send_init(buffer) if not lend else None]
        requests += [loop_pair.left.isend(buffer, 0, lend) for _ in range(3 if lend else 0)]
        for request in filter(None, requests):
            if not request.done():
                assert any(it is buffer for it in gc.get_referents(request))
