"""Prices an option by Monte Carlo on all ranks: pscompy run -n 4 montecarlo.py [PATHS]."""

from __future__ import annotations

import math
import sys

import numpy as np

import pscompy

SPOT, STRIKE, RATE, VOLATILITY, YEARS = 100.0, 105.0, 0.02, 0.25, 1.0
STEPS = 32
BATCH = 10_000


@pscompy.action
def payoffs(seed: int) -> tuple[float, float]:
    """Sum and sum of squares of the discounted payoffs of a batch of paths."""
    steps = np.random.default_rng(seed).standard_normal((BATCH, STEPS))
    drift = (RATE - VOLATILITY**2 / 2) * YEARS
    ends = SPOT * np.exp(drift + VOLATILITY * math.sqrt(YEARS / STEPS) * steps.sum(axis=1))
    paid = math.exp(-RATE * YEARS) * np.maximum(ends - STRIKE, 0)
    return float(paid.sum()), float((paid**2).sum())


def exact() -> float:
    """The price by the formula of Black and Scholes."""
    spread = VOLATILITY * math.sqrt(YEARS)
    up = (math.log(SPOT / STRIKE) + (RATE + VOLATILITY**2 / 2) * YEARS) / spread
    strike = STRIKE * math.exp(-RATE * YEARS)
    return SPOT * _normal(up) - strike * _normal(up - spread)


def _normal(x: float) -> float:
    return (1 + math.erf(x / math.sqrt(2))) / 2


def main(paths: int) -> None:
    with pscompy.World() as world, pscompy.Executor(world) as executor:
        if executor is None:
            return
        batches = max(1, paths // BATCH)
        sums = np.array(list(executor.map(payoffs, range(batches), chunksize=4)))
        count = batches * BATCH
        mean, square = sums.sum(axis=0) / count
        error = math.sqrt((square - mean**2) / count)
        print(f"{count} paths: {mean:.3f} +- {error:.3f}, exactly {exact():.3f}")
        print("within four standard errors:", abs(mean - exact()) < 4 * error)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
