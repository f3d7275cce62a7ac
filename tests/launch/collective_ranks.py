"""Ranks that make collective calls at random and compare each with serial_model.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pscompy
from tests.launch.serial_model import Draw

TIMEOUT = 200.0  # seconds


class Rank:
    """Makes the calls of one seed on some communicators, which no other thread uses."""

    def __init__(self, communicators: Sequence[Any], seed: int) -> None:
        first = communicators[0]
        self.communicators = communicators
        self.draw = Draw(seed, first.rank, first.size)

    def batches(self, n: int) -> None:
        for _ in range(n):
            self.delay()
            self.draw.same.choice((self.one, self.one, self.several, self.among_messages,
                                   self.objects))()  # fmt: skip

    def delay(self) -> None:
        if self.draw.own.random() < 0.3:
            time.sleep(self.draw.own.random() * 0.003)

    def communicator(self) -> Any:
        return self.draw.same.choice(self.communicators)

    def one(self) -> None:
        call = self.draw.call()
        function = getattr(self.communicator(), call.name)
        call.check(function(*call.arguments, **call.keywords, timeout=TIMEOUT))

    def objects(self) -> None:
        call = self.draw.objects()
        function = getattr(self.communicator(), call.name)
        call.check(function(*call.arguments, **call.keywords, timeout=TIMEOUT))

    def several(self) -> None:
        """Calls in flight at once, waited for in an order of this rank's own."""
        flying = []
        for _ in range(self.draw.same.randint(2, 6)):
            call, communicator = self.draw.call(), self.communicator()
            if call.posts:
                start = getattr(communicator, f"i{call.name}")
                flying.append((start(*call.arguments, **call.keywords), call))
            else:
                call.check(getattr(communicator, call.name)(*call.arguments, **call.keywords))
            self.delay()
        self.draw.own.shuffle(flying)
        for request, call in flying:
            call.check(request.wait(TIMEOUT))

    def among_messages(self) -> None:
        """Messages to the next rank on the communicator of the calls."""
        communicator, same = self.communicator(), self.draw.same
        rank, size = self.draw.rank, self.draw.size
        tag, length = same.randrange(1 << 30), same.choice((0, 8, 9000, 1 << 17))
        text = bytes([rank]) * length
        sends = [communicator.isend(text, (rank + 1) % size, tag)] if size > 1 else []
        self.several()
        if size > 1:
            received = communicator.recv(source=(rank - 1) % size, tag=tag, timeout=TIMEOUT)
            assert received == bytes([(rank - 1) % size]) * length
        for it in sends:
            it.wait(TIMEOUT)


def run(seed: int, batches: int, threads: int = 1, config: dict[str, Any] | None = None) -> None:
    """Each thread has communicators of its own."""
    failures: list[str] = []
    with pscompy.World(config) as world:
        owned = [[world.dup(), world.dup()] for _ in range(threads)]
        owned[0].append(world)

        def calls(number: int) -> None:
            try:
                Rank(owned[number], seed * 100 + number).batches(batches)
            except BaseException as error:
                failures.append(f"rank {world.rank} thread {number} seed {seed}: {error!r:.900}")
                raise

        others = [threading.Thread(target=calls, args=(it,)) for it in range(1, threads)]
        for it in others:
            it.start()
        calls(0)
        for it in others:
            it.join()
        assert not failures, failures
        print("ok")
