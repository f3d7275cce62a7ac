"""Ranks that call an empty action, or a pool of processes: FOLDER LIBRARY SECONDS. Rank 0 writes
the figures. LIBRARY is `pscompy`, `sleepers` (messages of 8 B between two ranks, both asleep in
between) or `multiprocessing`."""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pscompy

CALL, ROUND_TRIP = "call of an empty action", "round trip of 8 B with two wake-ups"
SUBMIT = "submit, one by one"
CHUNKS = (1, 10, 100)
WORKERS = 2
_MOST, _RATE = 10_000, 100_000  # tasks of a measurement, and tasks for each second that it may take
_CALLS = 20_000  # calls and round trips for each second


def mapped(chunk: int) -> str:
    """The name of a cell."""
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
    submit: Callable[[int], Any], finish: Callable[[Any], object], pool: Any, count: int
) -> dict[str, float]:
    """Thousands of tasks per second."""
    figures = {}
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


def _pscompy(seconds: float, count: int) -> dict[str, float]:
    figures = {}
    with pscompy.World() as world:
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
                    count,
                )
    return figures if world.rank == 0 else {}


def _sleepers(seconds: float) -> dict[str, float]:
    """PSP_SPIN_US=0 sends each side to sleep at once."""
    ball = np.zeros(1)
    with pscompy.World() as world:
        peer = world[1 - world.rank]

        def turn() -> None:
            if world.rank == 0:
                peer.send(ball, 0)
            peer.recv(ball)
            if world.rank == 1:
                peer.send(ball, 0)

        taken = _median_us(turn, seconds)
    return {ROUND_TRIP: taken} if world.rank == 0 else {}


def _pool(seconds: float, count: int) -> dict[str, float]:
    with multiprocessing.Pool(WORKERS) as pool:
        pool.map(nothing, range(WORKERS))
        return {
            CALL: _median_us(lambda: pool.apply(nothing), seconds),
            **_rates(
                lambda number: pool.apply_async(nothing, (number,)),
                lambda result: result.get(),
                pool,
                count,
            ),
        }


def main(folder: str, library: str, text: str) -> None:
    seconds = float(text)
    count = min(_MOST, int(seconds * _RATE))
    if library == "pscompy":
        figures = _pscompy(seconds, count)
    elif library == "sleepers":
        figures = _sleepers(seconds)
    else:
        figures = _pool(seconds, count)
    if figures:
        (Path(folder) / "figures").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
