"""Programs of ranks that fork while they hold or receive long arrays. With ordinary memory neither
the child nor its parent sees what the other one writes.
"""

from __future__ import annotations

import asyncio
import json
import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import pscompy
from pscompy import World

N = 50_000  # numbers of an array: too many for an eager message
CHILDREN = 3  # that are forked in one round
ROUNDS = 50
PAGE = 512  # numbers

Ask = Callable[[], Any]


def forked(
    work: Callable[..., object],
    *arguments: object,
    begin: Callable[..., object] = lambda *arguments: None,
) -> Ask:
    """Fork a child, which calls `begin` at once. The function that is returned lets the child call
    `work`, and returns what that returned there; the parent keeps no reference to the arguments."""
    told, tell = os.pipe()
    heard, answer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(tell)  # so that the child ends with its parent
            begin(*arguments)
            os.read(told, 1)
            os.write(answer, json.dumps(work(*arguments)).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def ask() -> Any:
        os.write(tell, b"x")
        os.close(answer)
        text = os.read(heard, 1000)
        os.waitpid(pid, 0)
        for descriptor in (told, tell, heard):
            os.close(descriptor)
        return json.loads(text)

    return ask


# ---- arrays that calls return -------------------------------------------------


def seen(arrays: Any) -> list[float]:
    """The smallest and the largest number of each array, and no number twice."""
    return sorted({float(number) for it in arrays for number in (it.min(), it.max())})


def fill(arrays: Any, number: float) -> list[float]:
    for it in arrays:
        it[...] = number
    return seen(arrays)


def outcome(receive: Callable[[], Any]) -> dict[str, list[float]]:
    """The numbers that a child and its parent see in the arrays of `receive`, which returns those
    of 1, then those of 2."""
    arrays = receive()
    first = forked(seen, arrays)
    del arrays  # its memory may be used again
    arrays = receive()
    told = {"the child that was forked with 1": first(), "the parent with 2": seen(arrays)}
    if all(it.flags.writeable for it in arrays):
        told["a child that wrote 3"] = forked(fill, arrays, 3)()
        told["its parent with 2"] = seen(arrays)
        second = forked(seen, arrays)
        told["the parent that wrote 4"] = fill(arrays, 4)
        told["its child with 2"] = second()
    return told


def checked(name: str, receive: Callable[[], Any]) -> None:
    for who, numbers in outcome(receive).items():
        assert numbers == [float(who[-1])], f"{name}: {who} sees {numbers}"
    print(name, flush=True)


def several(number: float) -> dict[str, Any]:
    return {name: np.full(N, number) for name in "abc"}


Way = tuple[Callable[[World, float, int], Any], Callable[[World, int], Any]]


def one(world: World, number: float, dest: int) -> Any:
    return world.isend(np.full(N, number), dest)


def one_object(world: World, number: float, dest: int) -> Any:
    return world.isend_obj(np.full(N, number), dest)


def some_objects(world: World, number: float, dest: int) -> Any:
    return world.isend_obj(several(number), dest)


async def awaited(request: Any) -> Any:
    return await request


WAYS: dict[str, Way] = {
    "recv": (one, lambda w, s: [np.frombuffer(w.recv(source=s), float)]),
    "irecv": (one, lambda w, s: [np.frombuffer(w.irecv(source=s).wait(60), float)]),
    "mprobe": (one, lambda w, s: [np.frombuffer(w.mprobe(source=s).recv(), float)]),
    "recv_status": (one, lambda w, s: [np.frombuffer(w.recv_status(source=s)[0], float)]),
    "recv_array": (one, lambda w, s: [w.recv_array(float, N, source=s)]),
    "recv_view": (one, lambda w, s: [w.recv_view(source=s, dtype=float)]),
    "recv_obj": (one_object, lambda w, s: [w.recv_obj(source=s)]),
    "recv_obj of any source": (one_object, lambda w, s: [w.recv_obj()]),
    "recv_obj of several": (some_objects, lambda w, s: list(w.recv_obj(source=s).values())),
    "recv_obj with a time-out": (some_objects, lambda w, s: list(w.recv_obj(s, -1, 60).values())),
    "irecv_obj": (some_objects, lambda w, s: list(w.irecv_obj(source=s).wait(60).values())),
    "await": (one_object, lambda w, s: [asyncio.run(awaited(w.irecv_obj(source=s)))]),
}


def receive_and_fork() -> None:
    """The last rank receives from the first in each way; one rank receives from itself."""
    with World() as world:
        last = world.size - 1
        for name, (send, receive) in WAYS.items():
            requests = [send(world, number, last) for number in (1.0, 2.0) if world.rank == 0]
            if world.rank == last:
                checked(name, lambda receive=receive: receive(world, 0))
            pscompy.wait_all(requests, 60)


# ---- actions ------------------------------------------------------------------


@pscompy.action
def result(number: float) -> Any:
    return several(number)


received: list[Any] = []


@pscompy.action
def argument(arrays: dict[str, Any]) -> list[list[float]]:
    """Keep the first arrays, and compare at the second call."""
    received.append(list(arrays.values()))
    del arrays
    if len(received) == 1:
        received[:] = [forked(seen, received.pop())]
        return []
    first, arrays = received
    return [first(), seen(arrays), forked(fill, arrays, 3)(), seen(arrays)]


def act_and_fork() -> None:
    """The last rank calls actions of the first, and the first those of the last."""
    with World() as world:
        last = world.size - 1
        if world.rank == last:
            numbers = iter((1, 2, 1, 2))
            checked("call", lambda: list(world.call(0, result, next(numbers)).values()))
            checked(
                "submit", lambda: list(world.submit(0, result, next(numbers)).result(60).values())
            )
        if world.rank == 0:
            world.call(last, argument, several(1))
            told = world.call(last, argument, several(2))
            assert told == [[1.0], [2.0], [3.0], [2.0]], told
            print("argument", flush=True)
        world.serve()


# ---- forks amid a rendezvous --------------------------------------------------


class Transfer:
    """Long messages from and to the other rank: from memory of the program, out of memory that was
    received, and objects."""

    def __init__(self, world: World, kept: Any) -> None:
        peer = 1 - world.rank
        self.kept, self.own = kept, np.full(len(kept), 5.0 + world.rank)
        self.into, self.onward = np.zeros_like(kept), np.zeros_like(kept)
        self.expected = [5.0 + peer], seen([kept])
        self.requests = [
            world.irecv_obj(peer, 3),
            world.irecv(self.into, peer, 1),
            world.irecv(self.onward, peer, 2),
            world.isend(self.own, peer, 1),
            world.isend(kept, peer, 2),
            world.isend_obj([self.own, kept], peer, 3),
        ]

    def test(self) -> bool:
        """Make progress; returns whether all messages have moved."""
        return sum(it.test() for it in self.requests) == len(self.requests)

    def partly(self) -> bool:
        """Whether a part of a message has arrived."""
        return len(seen([self.into])) + len(seen([self.onward])) > 2

    def check(self) -> None:
        own, kept = self.requests[0].wait()
        assert (seen([self.into]), seen([self.onward])) == self.expected
        assert (seen([own]), seen([kept])) == self.expected


def overwrite(arrays: list[Any]) -> None:
    fill(arrays, -1)


def transfer(world: World, kept: Any, spare: Any, parts: bool) -> int:
    """Fork while messages move; parent and children write to their copies of the memory. Returns
    how many children were forked; with `parts`, those that found a part of a message."""
    moving = Transfer(world, kept)
    arrays = [moving.own, moving.into, moving.onward, kept, spare]
    children: list[Ask] = []
    amid = 0
    while not moving.test():
        spare[::PAGE] += 1  # beside what arrives, perhaps in the same huge page
        if len(children) < CHILDREN:
            amid += not parts or moving.partly()
            children.append(forked(seen, arrays, begin=overwrite))
    moving.check()
    fill([moving.own, moving.into, moving.onward, spare], 9)
    assert [ask() for ask in children] == [[-1.0]] * len(children)
    return amid


def fork_amid_transfers(length: int, schemes: list[str], parts: bool) -> None:
    """Two ranks, in a world for each rendezvous scheme, until both have forked amid messages."""
    for scheme in schemes:
        with World(config={"RNDV_SCHEME": scheme}) as world:
            peer = 1 - world.rank
            sent = world.isend_obj([np.full(length, 4.0), np.zeros(length)], peer)
            kept, spare = world.recv_obj(source=peer)
            sent.wait(60)
            amid = 0
            for _ in range(ROUNDS):
                amid += transfer(world, kept, spare, parts)
                if min(amid, *world.sendrecv(bytes([amid]), peer, source=peer)) > 1:
                    break
            assert amid > 1, f"not forked amid messages by {scheme}"
            print(scheme, world[peer].transport, flush=True)
