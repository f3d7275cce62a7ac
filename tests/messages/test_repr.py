"""The repr of requests of every kind that a program can get."""

from __future__ import annotations

import gc
import signal

import pytest

import pscompy
from pscompy.api.request import Request
from tests.messages.conftest import Pair


def test_what_is_posted(pair: Pair) -> None:
    receive = pair.right.irecv(tag=3)
    assert repr(receive) == "<Request: receive from a peer with tag 3, in flight>"
    sent = pair.left.isend(b"x", tag=3)
    pair.wait(sent, receive)
    assert repr(sent) == "<Request: send to a peer with tag 3, done>"
    assert repr(receive) == "<Request: receive from a peer with tag 3, done>"
    late = pair.right.irecv(tag=4)
    assert late.cancel()
    assert repr(late) == "<Request: receive from a peer with tag 4, failed>"


class Interrupted(Exception):
    """Raised by the signal handler."""


def interrupt(*_: object) -> None:
    raise Interrupted


def test_what_an_interrupted_receive_of_an_object_leaves() -> None:
    """The message has arrived in part and its sender does not continue; the interrupted receive
    leaves a Request."""
    config = {"SHM": "0", "TCP": "1"}
    with pscompy.Session(name="right", config=config) as right:
        listening = right.listen()
        with pscompy.Session(name="left", config=config) as left:
            sender = left.connect(listening.address)
            sender.send(b"first")
            receiver = listening.accept()
            receiver.recv()
            sent = sender.isend_obj("text" * 5_000_000)
            before = signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.3, 0.1)
            try:
                with pytest.raises(Interrupted):
                    receiver.recv_obj()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
            left_behind = [it for it in gc.get_objects() if isinstance(it, Request)]
            texts = [repr(it) for it in left_behind]
            assert any(it.startswith("<Request: receive of an object from left") for it in texts)
            while not sent.test():
                right.progress()
