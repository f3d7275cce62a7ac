"""Finalizers and signal handlers use pscompy while their own thread is inside a call of pscompy.

The garbage collector runs finalizers at any allocation, a signal handler runs between any two
steps of the main thread. Every rank of a job does so at random moments, from the first contact on.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pscompy
from tests.jobs import Launcher

Script = Callable[..., Path]

LIMIT = 120.0  # seconds until a rank that hangs writes its stacks and ends
ACTS = 100  # calls from finalizers or handlers
BYTES, OBJECTS, ROUNDS, NEVER = range(1, 5)  # tags
RANKS = 4


@pscompy.action
def doubled(number: int) -> int:
    return 2 * number


class Acts:
    """Calls of pscompy that do not block, in random order."""

    def __init__(self, world: pscompy.World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.left = ACTS
        self.sent = {BYTES: [0] * world.size, OBJECTS: [0] * world.size}
        self.futures: list[tuple[int, pscompy.Future]] = []

    def act(self, *_: object) -> None:
        if not self.left:
            return
        self.left -= 1
        rank = self.chance.randrange(self.world.size)
        self.chance.choice((self.send, self.send_obj, self.submit, self.withdraw, self.ask))(rank)

    def send(self, rank: int) -> None:
        self.world.isend(b"x", dest=rank, tag=BYTES)
        self.sent[BYTES][rank] += 1

    def send_obj(self, rank: int) -> None:
        self.world.isend_obj([rank], dest=rank, tag=OBJECTS)
        self.sent[OBJECTS][rank] += 1

    def submit(self, rank: int) -> None:
        self.futures.append((self.left, self.world.submit(rank, doubled, self.left)))

    def withdraw(self, rank: int) -> None:
        assert self.world.irecv(source=rank, tag=NEVER).cancel()
        assert self.world.irecv_obj(source=rank, tag=NEVER).cancel()

    def ask(self, rank: int) -> None:
        assert self.world.stats
        assert repr(self.world[rank])


class Garbage:
    """A cycle whose finalizer acts."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.me = self
        self.act = act

    def __del__(self) -> None:
        self.act()


def by_finalizers(acts: Acts) -> Iterator[None]:
    while True:
        gc.set_threshold(acts.chance.randrange(1, 60))
        for _ in range(acts.chance.randrange(4)):
            Garbage(acts.act)
        yield


def by_signals(acts: Acts) -> Iterator[None]:
    signal.signal(signal.SIGALRM, acts.act)
    while True:
        signal.setitimer(signal.ITIMER_REAL, acts.chance.uniform(1e-5, 1e-3))
        yield


def storm(how: str, seed: int) -> None:
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    unraisable: list[str] = []
    sys.unraisablehook = lambda it: unraisable.append(f"{it.exc_value!r} in {it.object!r}")
    with pscompy.World() as world:
        acts = Acts(world, random.Random(seed * world.size + world.rank))
        disturb = {"finalizers": by_finalizers, "signals": by_signals}[how](acts)
        ranks = acts.chance.sample(range(world.size), world.size)
        while True:
            for rank in ranks:
                next(disturb)
                world.isend(b"round", dest=rank, tag=ROUNDS)
            for rank in ranks:
                next(disturb)
                assert world.recv(source=rank, tag=ROUNDS) == b"round"
            left = acts.left
            more = [world.isend_obj(left, dest=it, tag=ROUNDS) for it in ranks]
            told = [world.recv_obj(source=it, tag=ROUNDS) for it in ranks]
            pscompy.wait_all(more)
            if not any(told):
                break
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.set_threshold(700)
        gc.collect()
        check(world, acts)
        world.serve()
    sys.stdout.write("".join(f"unraisable: {it}\n" for it in unraisable) or "well\n")


def check(world: pscompy.World, acts: Acts) -> None:
    """Receive everything that the acts of all ranks have sent."""
    for number, future in acts.futures:
        assert future.result() == 2 * number
    for rank in range(world.size):
        world.isend_obj({tag: sent[rank] for tag, sent in acts.sent.items()}, dest=rank)
    for rank in range(world.size):
        sent = world.recv_obj(source=rank, tag=0)
        for _ in range(sent[BYTES]):
            assert world.recv(source=rank, tag=BYTES) == b"x"
        for _ in range(sent[OBJECTS]):
            assert world.recv_obj(source=rank, tag=OBJECTS) == [world.rank]


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("how", ["finalizers", "signals"])
def test_calls_that_do_not_block_work_anywhere(
    run: Launcher, script: Script, how: str, transport: str
) -> None:
    environ = {"PSP_SHM": str(int(transport == "shm"))}
    for seed in range(2):
        done = run("-n", RANKS, *run.python(script(storm, how, seed)), env=environ)
        # on a busy machine a rank may serve late, which the log says
        told = [it for it in done.stderr.splitlines() if "has not called serve()" not in it]
        assert (done.returncode, told) == (0, [])
        assert done.stdout.splitlines() == ["well"] * RANKS


# ---- at the first use ----


class Signals:
    """A finder that finds nothing, but sends a signal while the module of objects is half made."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name.startswith("pscompy.parcel.") and "pscompy.parcel.objects" in sys.modules:
            signal.raise_signal(signal.SIGALRM)


def at_first_use(call: str) -> None:
    with pscompy.World() as world:
        calls = {
            "send_obj": lambda: world.isend_obj([1], dest=0, tag=BYTES).wait(),
            "submit": lambda: world.submit(0, doubled, 1).result(),
            "recv_obj": lambda: world.irecv_obj(tag=NEVER).cancel(),
        }
        # isend_obj and irecv_obj do not block
        inside = {**calls, "send_obj": lambda: world.isend_obj([1], dest=0, tag=OBJECTS)}
        inside["submit"] = lambda: world.submit(0, doubled, 2)
        signal.signal(signal.SIGALRM, lambda *_: inside[call]())
        sys.meta_path.insert(0, Signals)  # type: ignore[arg-type]
        assert calls[call]() in (None, 2, True)
        assert "pscompy.parcel.objects" in sys.modules
    print("well")


def at_an_import_of_the_program() -> None:
    """The handler's own thread has begun to import the module, so the handler cannot wait."""
    refused: list[bool] = []

    def act(*_: object) -> None:
        try:
            world.isend_obj([1], dest=0)
        except ImportError:
            refused.append(True)

    with pscompy.World() as world:
        signal.signal(signal.SIGALRM, act)
        sys.meta_path.insert(0, Signals)  # type: ignore[arg-type]
        importlib.import_module("pscompy.parcel.objects")
        sys.meta_path.remove(Signals)  # type: ignore[arg-type]
        assert refused
        world.isend_obj([1], dest=0).wait()
    print("well")


def test_a_handler_does_not_wait_for_its_own_thread(run: Launcher, script: Script) -> None:
    assert run.lines(1, *run.python(script(at_an_import_of_the_program))) == ["well"]


@pytest.mark.parametrize("call", ["send_obj", "submit", "recv_obj"])
def test_a_handler_runs_while_modules_are_imported(
    run: Launcher, script: Script, call: str
) -> None:
    assert run.lines(1, *run.python(script(at_first_use, call))) == ["well"]
