"""Helpers of the tests of cancelled awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from pscompy.api.c import _binding
from tests.messages.conftest import Pair

FAR = 60.0


async def cancelled(awaiting: Awaitable[Any], turns: int = 3) -> None:
    """Await in a task that is cancelled after some turns of the event loop."""

    async def one() -> Any:
        return await awaiting

    task = asyncio.create_task(one())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def received(pair: Pair, tag: int = -1) -> bytes:
    return bytes(await asyncio.wait_for(once(pair.right.irecv(tag=tag)), FAR))


async def received_with(pair: Pair, sent: _binding.Request) -> bytes:
    _, data = await asyncio.wait_for(asyncio.gather(sent, pair.right.irecv()), FAR)
    return bytes(data)


async def once(request: _binding.Request) -> Any:
    return await request


def message(nbytes: int, seed: int = 0) -> bytes:
    return (bytes(range(seed, 200 + seed)) * (nbytes // 200 + 1))[:nbytes]
