"""Messages that do not fit into memory: the error is reported and the connection still works."""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor

import pytest

import pscompy
from tests.messages.conftest import Pair

NBYTES = 1 << 45  # 32 TiB of address space; no page is ever touched


@pytest.fixture(scope="module")
def huge() -> mmap.mmap:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    return mmap.mmap(-1, NBYTES, flags=flags, prot=mmap.PROT_READ)


@pytest.mark.parametrize("how", ["recv", "irecv", "recv_view", "mprobe"])
def test_a_message_that_there_is_no_memory_for(pair: Pair, huge: mmap.mmap, how: str) -> None:
    sent = pair.left.isend(huge, tag=1)
    status = None
    while status is None:
        pair.progress()
        status = pair.right.iprobe(tag=1)
    assert status.nbytes == NBYTES
    with pytest.raises(pscompy.NoMemory, match=f"{NBYTES} bytes") as caught:
        match how:
            case "recv":
                pair.right.recv(tag=1)
            case "irecv":
                pair.right.irecv(tag=1).wait()
            case "recv_view":
                pair.right.recv_view(tag=1)
            case "mprobe":
                message = pair.right.improbe(tag=1)
                assert message is not None
                message.recv()
    assert isinstance(caught.value, MemoryError)
    assert caught.value.nbytes == NBYTES
    # The message stays queued and can be received into a smaller buffer.
    buffer = bytearray(8)
    receive = pair.right.irecv(buffer, tag=1)
    pair.until(receive.test)
    with pytest.raises(pscompy.Truncated):
        receive.result()
    pair.wait(sent)


def test_memory_that_there_is_no_memory_for(pair: Pair) -> None:
    with pytest.raises(MemoryError, match=f"{1 << 50} bytes cannot be allocated"):
        pair.sides[0].worker.allocate(1 << 50)


def test_an_active_message_that_there_is_no_memory_for(pair: Pair, huge: mmap.mmap) -> None:
    """The sender gets an error, and the connection still works."""
    got: list[bytes] = []
    pair.sides[-1].worker.on_message(7, lambda source, header, data: got.append(bytes(data)))
    with ThreadPoolExecutor(1) as sender:
        refused = sender.submit(pair.left.am_send, 7, b"head", huge)
        pair.until(refused.done)
        with pytest.raises(pscompy.NoMemory, match=f"{NBYTES + 4} bytes"):
            refused.result()
        sent = sender.submit(pair.left.am_send, 7, b"head", b"short")
        pair.until(lambda: sent.done() and got)
        assert sent.result() is None
    assert got == [b"short"]
