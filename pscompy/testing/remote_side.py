"""The functions that the far process of a test calls, each with its `Here`."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from typing import Any

from pscompy.api.connection import Connection
from pscompy.api.memory import MemoryRegion
from pscompy.api.request import wait_all
from pscompy.api.session import Session
from pscompy.errors import Closed, PscomError

BOUND = 60.0
_RANDOM = random.Random(0).randbytes(65537)


class Here:
    """The state of the far process: one session, one connection, a memory region, messages, and
    values that the functions of a test store in it."""

    session: Session | None = None
    served = True  # if False, the session makes no progress between calls
    c: Connection
    region: MemoryRegion
    buffer: bytearray
    messages: list[tuple[int, bytes, bytes]]


def payload(nbytes: int, seed: int = 0) -> bytes:
    """Return bytes that both sides compute alike from length and seed: random bytes, which repeat
    after a prime number of bytes, so that no two fragments of a message are alike."""
    start = (nbytes + 7919 * seed) % len(_RANDOM)
    turned = _RANDOM[start:] + _RANDOM[:start]
    count, rest = divmod(nbytes, len(turned))
    return b"".join([*[turned] * count, turned[:rest]])


# ---- opening and closing ----


def connect(here: Here, address: str, config: Mapping[str, object]) -> None:
    session = here.session = Session(config=config)
    here.c = session.connect(address)
    here.c.open(timeout=BOUND)


def close_connection(here: Here) -> None:
    here.c.close()


def close(here: Here) -> None:
    session, here.session = here.session, None
    assert session is not None
    session.close()


def stats(here: Here) -> dict[str, int]:
    return here.c.stats


def wait_closed(here: Here) -> str:
    """Receive until there is an error; returns the name of its class."""
    try:
        while True:
            here.c.recv(timeout=BOUND)
    except PscomError as error:
        return type(error).__name__


# ---- messages ----


def echo(here: Here, count: int) -> None:
    for _ in range(count):
        data, status = here.c.recv_status(timeout=BOUND)
        here.c.send(data, tag=status.tag, timeout=BOUND)


def send(here: Here, *sizes: int, tag: int = 0) -> None:
    """Send one message per size; the seed of its payload is its position."""
    for place, nbytes in enumerate(sizes):
        here.c.send(payload(nbytes, place), tag=tag, timeout=BOUND)


def send_tagged(here: Here, *tags: int, nbytes: int = 8) -> None:
    for tag in tags:
        here.c.send(payload(nbytes, tag), tag=tag, timeout=BOUND)


def send_ahead(here: Here, count: int, nbytes: int) -> None:
    """Send messages with tag 0, followed by an empty one with tag 1."""
    ahead = [here.c.isend(payload(nbytes, place)) for place in range(count)]
    here.c.send(b"", tag=1, timeout=BOUND)
    wait_all(ahead, timeout=BOUND)


def send_later(here: Here, seconds: float, nbytes: int) -> None:
    time.sleep(seconds)
    send(here, nbytes)


def receive(here: Here, *sizes: int) -> None:
    """Receive messages of these sizes, with the payloads of `send`."""
    for place, nbytes in enumerate(sizes):
        data = here.c.recv(timeout=BOUND)
        assert data == payload(nbytes, place), f"message {place}"


def receive_and_answer(here: Here, nbytes: int) -> None:
    receive(here, nbytes)
    here.c.send(b"", timeout=BOUND)


def pass_back(here: Here, tag: int) -> None:
    here.c.recv(tag=tag, timeout=BOUND)
    here.c.send(b"", tag=tag, timeout=BOUND)


def receive_later(here: Here, seconds: float, *sizes: int) -> None:
    time.sleep(seconds)
    receive(here, *sizes)


def exchange(here: Here, sizes: list[int]) -> None:
    """Send and receive a message of each size, all at once; tags are positions."""
    sends = [here.c.isend(payload(n, i), tag=i) for i, n in enumerate(sizes)]
    receives = [here.c.irecv(tag=i) for i in range(len(sizes))]
    wait_all(sends, timeout=BOUND)
    for place, (data, nbytes) in enumerate(
        zip(wait_all(receives, timeout=BOUND), sizes, strict=True)
    ):
        assert data == payload(nbytes, place), f"message {place}"


def flood(here: Here, count: int, nbytes: int) -> None:
    """Send messages without waiting for the peer to receive, and wait until all sends complete."""
    requests = [here.c.isend(payload(nbytes, place)) for place in range(count)]
    wait_all(requests, timeout=BOUND)


def flood_and_send(here: Here, count: int, nbytes: int) -> None:
    """Send messages, and then one with another tag; wait until all sends complete."""
    data = payload(nbytes)
    requests = [here.c.isend(data) for _ in range(count)]
    requests.append(here.c.isend(b"wanted", tag=1))
    wait_all(requests, timeout=BOUND)


def start_sending(here: Here, nbytes: int) -> None:
    """Send messages in a thread, until an error ends it."""

    def run() -> None:
        data = payload(nbytes)
        try:
            while True:
                here.c.send(data)
        except (PscomError, Closed):
            return

    threading.Thread(target=run, daemon=True).start()


# ---- active messages and memory ----


def handle_messages(here: Here, number: int) -> None:
    here.messages = []

    def handler(source: Any, header: bytes, data: bytearray) -> None:
        here.messages.append((number, bytes(header), bytes(data)))

    assert here.session is not None
    here.session.on_message(number, handler)


def handled(here: Here, count: int) -> list[tuple[int, bytes, bytes]]:
    """Wait until `count` active messages have arrived, and return the messages."""
    assert here.session is not None
    deadline = time.monotonic() + BOUND
    while len(here.messages) < count:
        assert time.monotonic() < deadline, f"{len(here.messages)} of {count} came"
        here.session.progress()
    return here.messages


def register(here: Here, nbytes: int) -> bytes:
    """Register a region filled with `payload(nbytes)`; returns its remote key."""
    here.buffer = bytearray(payload(nbytes))
    assert here.session is not None
    here.region = here.session.register(here.buffer)
    return here.region.rkey


def memory(here: Here) -> bytes:
    return bytes(here.buffer)


def unregister(here: Here) -> None:
    here.region.close()
