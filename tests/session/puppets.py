"""Puppet, a far process of the tests of whole sessions, and the helpers that they share."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pscompy
from pscompy.control.handshake import handshake
from pscompy.testing import remote_side
from pscompy.testing.base import Joined
from pscompy.testing.process import BOUND, Far
from pscompy.testing.remote_side import payload
from tests.waiting import asleep, expect_soon, state_of

# Configurations that leave one transport enabled.
ONLY = {
    "shm": {"TCP": 0},
    "tcp": {"SHM": 0},
    "portals": {"SHM": 0, "TCP": 0, "PORTALS": 1},
}


LONG = 8 << 20

HELPERS = {"helpers", "archives", "forged", "pooled", "puppets", "actions"}


def variables(added: dict[str, str]) -> dict[str, str]:
    """The environment of a puppet that is started now, without what differs in each test."""
    environ = {**os.environ, **added}
    return {k: v for k, v in environ.items() if k not in ("PSP_KEY", "PYTEST_CURRENT_TEST")}


class Puppet(Far):
    """A far process with a session, which makes progress inside calls only."""

    def __init__(self, **environ: str) -> None:
        self.environ = variables(environ)
        super().__init__(**environ)
        self(lambda here: setattr(type(here), "as_begun", process_state()))

    def connect(self, address: str) -> None:
        self(connect, address)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        """Suspend the puppet. Returns once all its threads have stopped: on a busy machine they may
        go on for a while after the signal."""
        self.send_signal(signal.SIGSTOP)
        stopped = partial(self.all_threads, lambda thread: state_of(thread) == "T")
        expect_soon(stopped, "the puppet's stop")

    def finish(self) -> int:
        """Let the puppet exit like a program at the end of its input; returns the exit code."""
        self.hang_up()
        return self.wait()

    def sleeps(self) -> bool:
        """True if the puppet's main thread is blocked in the kernel."""
        return asleep(self.pid, self.pid)

    def idle(self) -> bool:
        """True if all threads of the puppet are blocked in the kernel."""
        return self.all_threads(lambda thread: asleep(thread, self.pid))

    def all_threads(self, condition: Callable[[int], bool]) -> bool:
        """True if the condition is true of all threads of the puppet, and none ends meanwhile."""
        threads = [int(it) for it in os.listdir(f"/proc/{self.pid}/task")]
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return all(map(condition, threads))
        return False

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident(self) -> int:
        """Resident memory of the puppet, in bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def renew(self, seconds: float = 5.0) -> bool:
        """Close the session there within `seconds`; returns True if the process is then as it
        began, so that it may serve another test."""
        self.session = None
        try:
            if self.busy or not self.alive or state_of(self.pid) == "T":
                return False
            self.begin(close_all)
            return bool(self.result(timeout=seconds))
        except Exception:  # the process has ended, hangs, or cannot close its session
            return False

    def end(self) -> None:
        """Kill the puppet even if it is stopped, and close its pipes."""
        with contextlib.suppress(ProcessLookupError):  # it has ended
            self.send_signal(signal.SIGCONT)
        self.kill()
        self.close()


# ---- functions that puppets run ----


def process_state() -> object:
    """What a test may change in its puppet, besides the session and the `Here`."""
    signals = [signal.getsignal(it) for it in sorted(signal.valid_signals())]
    limits = [resource.getrlimit(it) for it in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)]
    imported = {it for it in sys.modules if it.startswith("tests.") or it in HELPERS}
    return signals, limits, imported, threading.active_count(), own_descriptors(), gc.isenabled()


def close_all(here: Any) -> bool:
    here.session.close()
    vars(here).clear()
    gc.collect()
    return bool(process_state() == here.as_begun)


def open_session_there(here: Any, config: dict[str, object], key: str | None = None) -> None:
    os.environ["PSP_KEY"] = key or os.environ["PSP_KEY"]
    here.config, here.served = config, False
    here.session = pscompy.Session(config=config)


def connect(here: Any, address: str) -> None:
    here.c = here.session.connect(address)
    here.c.send(b"hello")


def listen(here: Any, port: int = 0) -> str:
    """Returns the address."""
    here.sock = here.session.listen("127.0.0.1", port)
    return str(here.sock.address)


def accept(here: Any) -> bytes:
    """Accept a connection; returns its first message."""
    here.c = here.sock.accept(BOUND)
    return bytes(here.c.recv())


def echo(here: Any, n: int) -> None:
    for _ in range(n):
        here.c.send(here.c.recv())


def stats(here: Any) -> dict[str, int]:
    return dict(here.c.stats)


def echo_objects(here: Any, n: int = 1) -> None:
    for _ in range(n):
        here.c.send_obj(here.c.recv_obj())


def answer_in_threads(here, count, n):
    def answer(tag):
        for _ in range(count):
            here.c.send(here.c.recv(tag=tag), tag=tag)

    threads = [threading.Thread(target=answer, args=(tag,)) for tag in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ---- the test's side ----


@dataclass
class Link:
    """A session of this process and one connection from it to a puppet."""

    session: pscompy.Session
    sock: pscompy.Socket
    c: pscompy.Connection
    peer: Puppet


Start = Callable[..., Puppet]
Connect = Callable[..., Link]


def attach(session: pscompy.Session, sock: pscompy.Socket, peer: Puppet) -> Link:
    peer.connect(sock.address)
    c = sock.accept(timeout=BOUND)
    assert c.recv(timeout=BOUND) == b"hello"
    return Link(session, sock, c, peer)


def together(*works, seconds=100.0):
    """Run each function in a thread of its own; the first error is raised here."""
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def quiet_port() -> int:
    """A port below the ephemeral range, so that the kernel gives it to no other socket
    meanwhile."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def own_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) - 1  # listdir itself has one descriptor open


def exchange(link: Link, count: int) -> None:
    """Have so many long messages echoed, and compare them."""
    link.peer.begin(echo, count)
    for number in range(count):
        data = payload(LONG, number)
        link.c.send(data, timeout=BOUND)
        assert link.c.recv(timeout=BOUND) == data
    link.peer.result()


def exchanged(link: Joined, far: Far, sizes: list[int]) -> None:
    """Exchange messages of these sizes with the far side, and compare them."""
    far.begin(remote_side.exchange, sizes)
    sends = [link.c.isend(payload(n, i), tag=i) for i, n in enumerate(sizes)]
    receives = [link.c.irecv(tag=i) for i in reversed(range(len(sizes)))]
    came = pscompy.wait_all(receives, timeout=BOUND)[::-1]
    pscompy.wait_all(sends, timeout=BOUND)
    far.result()
    assert came == [payload(n, i) for i, n in enumerate(sizes)]


def check_echo(link: Link) -> None:
    """Check that link.c and its puppet still exchange messages in both directions."""
    link.peer.begin(lambda here: here.c.send(b"<" + here.c.recv() + b">"))
    link.c.send(b"still there")
    assert link.c.recv(timeout=BOUND) == b"<still there>"
    link.peer.result()


def at_stage(stage: str, act: Callable[[], object]) -> None:
    """Call `act` once a precon of this process comes to this state."""
    step = handshake.step

    def step_and_act(table: Any, state: Any, event: Any) -> Any:
        after = step(table, state, event)
        if table is handshake.LINK and after.name == stage:
            handshake.step = step
            act()
        return after

    handshake.step = step_and_act


def die_at(here: Any, stage: str) -> None:
    at_stage(stage, lambda: os.kill(os.getpid(), signal.SIGKILL))
