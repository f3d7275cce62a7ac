"""Cases of an empty function that runs in another process: by call and by an executor, or in a pool
of multiprocessing."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pscompy
from bench.libraries import Own
from bench.rows import Figures

CALL, ROUND_TRIP = "call of an empty action", "round trip of 8 B with two wake-ups"
SUBMIT = "submit, one by one"
CHUNKS = (1, 10, 100)
WORKERS = 2
_MOST, _RATE = 10_000, 100_000  # tasks of a measurement, and tasks for each second that it may take
_CALLS = 20_000  # calls and round trips for each second


def mapped(chunk: int) -> str:
    return f"map, chunks of {chunk}"


@pscompy.action
def nothing(number: int = 0) -> None:
    pass


def _median_us(function: Callable[[], object], seconds: float) -> float:
    taken = []
    for _ in range(max(20, int(seconds * _CALLS))):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


def _rates(
    submit: Callable[[int], Any], finish: Callable[[Any], object], pool: Any, seconds: float
) -> Figures:
    """Thousands of tasks per second."""
    figures = {}
    count = min(_MOST, int(seconds * _RATE))
    start = time.perf_counter()
    for begun in [submit(number) for number in range(count)]:
        finish(begun)
    figures[SUBMIT] = count / (time.perf_counter() - start) / 1e3
    for chunk in CHUNKS:
        start = time.perf_counter()
        for _ in pool.map(nothing, range(count), chunksize=chunk):
            pass
        figures[mapped(chunk)] = count / (time.perf_counter() - start) / 1e3
    return figures


def actions(own: Own, seconds: float) -> Figures | None:
    figures = {}
    world = own.world
    if world.rank == 0:
        world.call(1, nothing)
        figures[CALL] = _median_us(lambda: world.call(1, nothing), seconds)
    world.serve()
    with pscompy.Executor(world) as executor:
        if executor is not None:
            list(executor.map(nothing, range(WORKERS)))
            figures |= _rates(
                lambda number: executor.submit(nothing, number),
                lambda future: future.result(),
                executor,
                seconds,
            )
    return figures if world.rank == 0 else None


def sleepers(own: Own, seconds: float) -> Figures | None:
    """Messages of 8 B between two ranks, which PSP_SPIN_US=0 sends to sleep at once."""
    ball = np.zeros(1)
    peer = own.world[own.peer]

    def turn() -> None:
        if own.rank == 0:
            peer.send(ball, 0)
        peer.recv(ball)
        if own.rank == 1:
            peer.send(ball, 0)

    taken = _median_us(turn, seconds)
    return {ROUND_TRIP: taken} if own.rank == 0 else None


def pool(library: None, seconds: float) -> Figures:
    with multiprocessing.Pool(WORKERS) as workers:
        workers.map(nothing, range(WORKERS))
        return {
            CALL: _median_us(lambda: workers.apply(nothing), seconds),
            **_rates(
                lambda number: workers.apply_async(nothing, (number,)),
                lambda result: result.get(),
                workers,
                seconds,
            ),
        }
