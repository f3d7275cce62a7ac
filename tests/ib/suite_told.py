"""Messages that are put into receives of which their senders were told (PSP_TUPLEQ=1), as
docs/overlap.md describes them; run inside the guest (see test_suites.py).
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.program import program

LONG = 1 << 20


def told(*tupleq: str) -> None:
    os.environ["PSP_TUPLEQ"] = tupleq[int(os.environ["PMI_RANK"])]
    from pscompy import Cancelled, Timeout, World

    with World() as world:
        peer = world[1 - world.rank]
        field = bytearray(LONG)
        if world.rank == 0:
            peer.recv()  # the receive is posted
            peer.send(bytes([7]) * LONG)
            before = dict(peer.stats)
            print("put", before["tuple_placed"], "announced", before["rndv_rts"], flush=True)
            peer.recv()  # also that the second receive was cancelled
            peer.send(bytes([8]) * LONG, tag=2)
            peer.send(bytes([9]) * LONG, tag=3)
            peer.recv()
        else:
            request = peer.irecv(field)
            peer.send(b"")
            request.wait()
            assert field == bytes([7]) * LONG
            second = peer.irecv(field, tag=2)
            asked = second.cancel()
            try:
                second.wait()
            except Cancelled:
                print("cancelled", asked, flush=True)
            try:
                peer.recv(bytearray(LONG), tag=3, timeout=0.2)
            except Timeout:
                print("in time", flush=True)
            peer.send(b"")
            assert peer.recv(tag=2) == bytes([8]) * LONG
            assert peer.recv(tag=3) == bytes([9]) * LONG
            peer.send(b"")
        explained = str(peer.explain())
        line = next(it for it in explained.splitlines() if "told to the sender" in it)
        print(line.strip(), flush=True)
        raise SystemExit(0)


def ranks(*tupleq: str) -> list[str]:
    """The output of two ranks with these values of PSP_TUPLEQ."""
    text = program(told, *tupleq)
    done = subprocess.run(
        [sys.executable, "-m", "pscompy", "run", "-n", "2", "--", sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PSP_SHM": "0", "PSP_TCP": "0"},
    )
    print(done.stdout, done.stderr)
    return sorted(done.stdout.splitlines())


def test_the_adapter_fills_the_receive() -> None:
    yes = "long receives are told to the sender: yes"
    assert ranks("1", "1") == ["cancelled False", "in time", yes, yes, "put 1 announced 0"]


def test_without_the_variable_messages_are_announced() -> None:
    no = "long receives are told to the sender: no (PSP_TUPLEQ is not 1)"
    assert ranks("0", "0") == ["cancelled True", "in time", no, no, "put 0 announced 1"]


def test_a_sender_without_the_variable_answers() -> None:
    printed = ranks("0", "1")
    assert printed[:2] == ["cancelled False", "in time"]
    assert printed[-1] == "put 0 announced 1"
