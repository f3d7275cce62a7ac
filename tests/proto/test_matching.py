"""Compares match.c with a model in Python: sends, receives, probes and cancels in any order must
give the results of MPI's rules, from three sources over three transports, in two contexts; also if
one of the transports matches in its interface."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    multiple,
    rule,
    run_state_machine_as_test,
)

from pscompy import ANY_SOURCE, ANY_TAG, Cancelled, Truncated
from tests.portals.faults import faulty
from tests.proto.fabric import EAGER_MAX, RANKS, Fabric
from tests.proto.model import ANY, Matcher, Posted, Sent

CONTEXTS = range(2, 4)
contexts = st.sampled_from(CONTEXTS)
TRANSPORTS = ("loop", "shm", "tcp")
SEEN = ("loop", "shm", "shm")
TOLD = ("loop", "tcp", "tcp")
MATCHING = ("loop", "shm", "portals")
SETTINGS = {"PORTALS": 1, "PORTALS_PROVIDER": "software"}
TROUBLE = dict.fromkeys(
    ("drop", "duplicate", "reorder", "reorder_events", "disable_tables"), 10_000
)
sources = st.integers(0, RANKS - 1)
tags = st.integers(0, 1)
wanted_sources = st.sampled_from([ANY, 0, 1, 2, 2])  # source 2 may be matched in its interface
wanted_tags = st.sampled_from([ANY, 0, 1])
sizes = st.sampled_from([0, 1, 50, EAGER_MAX, EAGER_MAX + 1, 30_000])
rooms = st.sampled_from([None, 0, 20, 40_000, 40_000])  # None: the library allocates the buffer
# More than a list keeps without an index; strides that a poor hash would not spread.
crowds = st.integers(12, 40)
strides = st.sampled_from([1, 64, 1 << 20])


class Receive:
    """A receive in flight, in the model and in the library."""

    def __init__(self, wanted: Posted, request: Any, buffer: bytearray | None) -> None:
        self.wanted = wanted
        self.request = request
        self.buffer = buffer


class Matching(RuleBasedStateMachine):
    """The runs share a fabric; after a run that did not leave it empty a new one is made."""

    fabric: ClassVar[Fabric]
    clean: ClassVar[bool] = True
    asked: ClassVar[tuple[int, ...]]  # the sources that write into receives of which they are told

    receives = Bundle("receives")
    messages = Bundle("messages")

    def __init__(self) -> None:
        super().__init__()
        if not Matching.clean:
            Matching.fabric.close()
            Matching.fabric = Matching.fabric.again()
        Matching.clean = False
        self.model = Matcher()
        self.waiting: dict[Posted, Receive] = {}
        self.sends: list[Any] = []
        self.held: dict[Sent, Any] = {}
        self.place = 0

    # ---- operations of a program ----

    @rule(context=contexts, source=sources, tag=tags, nbytes=sizes)
    def send(self, context: int, source: int, tag: int, nbytes: int) -> None:
        self.place += 1
        payload = (b"%d." % self.place * nbytes)[:nbytes]
        message = Sent(self.place, context, source, tag, payload)
        before = self.fabric.counted("unexpected")
        self.sends.append(self.fabric.senders[context][source].isend(payload, tag))
        wanted = self.model.arrive(message)
        if wanted is None:
            self.fabric.until(lambda: self.fabric.counted("unexpected") == before + 1)
        else:
            self.finish(self.waiting.pop(wanted), message)

    @rule(target=receives, context=contexts, source=wanted_sources, tag=wanted_tags, room=rooms)
    def receive(
        self, context: int, source: int | None, tag: int | None, room: int | None
    ) -> Receive:
        wanted = Posted(context, source, tag)
        buffer = None if room is None else bytearray(room)
        request = self.fabric.worlds[context].irecv(buffer, *arguments(wanted))
        receive = Receive(wanted, request, buffer)
        message = self.model.post(wanted)
        if message is not None:
            self.finish(receive, message)
        else:
            assert not request.test()
            self.waiting[wanted] = receive
        return receive

    @rule(context=contexts, source=sources, number=crowds, stride=strides)
    def send_many(self, context: int, source: int, number: int, stride: int) -> None:
        for place in range(number):
            self.send(context, source, place * stride, 1)

    @rule(target=receives, context=contexts, source=wanted_sources, number=crowds, stride=strides)
    def receive_many(self, context: int, source: int | None, number: int, stride: int) -> Any:
        return multiple(
            *(self.receive(context, source, place * stride, 20) for place in range(number))
        )

    @rule(context=contexts, source=wanted_sources, number=crowds, stride=strides)
    def probe_many(self, context: int, source: int | None, number: int, stride: int) -> None:
        for place in reversed(range(number)):
            self.probe(context, source, place * stride)

    @rule(receive=receives)
    def cancel(self, receive: Receive) -> None:
        was_waiting = self.waiting.pop(receive.wanted, None)
        if was_waiting is None:
            return
        self.model.posted.remove(receive.wanted)
        self.withdraw(receive)

    @rule(context=contexts, source=wanted_sources, tag=wanted_tags)
    def probe(self, context: int, source: int | None, tag: int | None) -> None:
        wanted = Posted(context, source, tag)
        check_status(
            self.fabric.worlds[context].iprobe(*arguments(wanted)), self.model.probe(wanted)
        )

    @rule(target=messages, context=contexts, source=wanted_sources, tag=wanted_tags)
    def matched_probe(self, context: int, source: int | None, tag: int | None) -> Any:
        wanted = Posted(context, source, tag)
        message = self.fabric.worlds[context].improbe(*arguments(wanted))
        expected = self.model.take(wanted)
        check_status(message and message.status, expected)
        if expected is None:
            return multiple()
        self.held[expected] = message
        return expected

    @rule(message=consumes(messages))
    def receive_matched(self, message: Sent) -> None:
        held = self.held.pop(message)
        assert self.fabric.moving(held.recv) == message.payload

    @rule(message=consumes(messages))
    def drop_matched(self, message: Sent) -> None:
        del self.held[message]
        wanted = self.model.put_back(message)
        if wanted is not None:
            self.finish(self.waiting.pop(wanted), message)

    # ---- expected results ----

    def withdraw(self, receive: Receive) -> None:
        """Cancel the receive. A sender that was told of it and may write there is asked first."""
        if not receive.request.cancel():
            assert receive.wanted.source in self.asked
            self.fabric.until(receive.request.test)
        with pytest.raises(Cancelled):
            receive.request.result()

    def finish(self, receive: Receive, message: Sent) -> None:
        request = receive.request
        self.fabric.until(request.test)
        check_status(request.status, message)
        if receive.buffer is None:
            assert request.result() == message.payload
        elif len(message.payload) <= len(receive.buffer):
            request.result()
            assert receive.buffer[: len(message.payload)] == message.payload
        else:
            with pytest.raises(Truncated) as caught:
                request.result()
            assert caught.value.nbytes == len(message.payload)
            assert receive.buffer == message.payload[: len(receive.buffer)]

    def teardown(self) -> None:
        if sys.exc_info()[1] is None:  # else the first error explains more
            self.check_end()

    def check_end(self) -> None:
        """Receive the remaining messages, which must be in order. Then the fabric is empty."""
        for message, held in self.held.items():
            assert self.fabric.moving(held.recv) == message.payload
        for receive in self.waiting.values():
            self.withdraw(receive)
        self.model.posted.clear()
        for context in CONTEXTS:
            while message := self.model.take(Posted(context, ANY, ANY)):
                request = self.fabric.worlds[context].irecv()
                self.finish(Receive(Posted(context, ANY, ANY), request, None), message)
            assert self.fabric.worlds[context].iprobe() is None
        for send in self.sends:
            self.fabric.until(send.test)
            send.result()
        Matching.clean = True


def arguments(wanted: Posted) -> tuple[int, int]:
    source = ANY_SOURCE if wanted.source is ANY else wanted.source
    return source, ANY_TAG if wanted.tag is ANY else wanted.tag


def check_status(status: Any, message: Sent | None) -> None:
    expected = message and (message.source, message.tag, len(message.payload))
    assert (status and tuple(status)) == expected


@pytest.fixture(
    params=[
        (TRANSPORTS, {}, {}),
        (SEEN, {"TUPLEQ": 1, "TUPLEQ_MIN": 10}, {}),
        (TOLD, {"TUPLEQ": 1}, {}),
        (MATCHING, SETTINGS, {}),
        (MATCHING, SETTINGS, TROUBLE),
    ],
    ids=["software", "seen by the peer", "told to the peer", "fabric", "fabric in trouble"],
)
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    transports, config, faults = request.param
    with faulty(faults):
        Matching.fabric, Matching.clean = Fabric(CONTEXTS, transports, config), True
        Matching.asked = (0,) if "TUPLEQ" in config else ()  # loop does
        yield Matching.fabric
        Matching.fabric.close()


def test_matching_follows_the_model(fabric: Fabric) -> None:
    run_state_machine_as_test(
        Matching,
        settings=settings(
            max_examples=int(os.environ.get("PSCOMPY_TEST_EXAMPLES", "50")),
            stateful_step_count=50,
            deadline=None,
            phases=[Phase.generate],  # no shrinking: each failing run waits for a timeout
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.usefixtures("fabric")
@pytest.mark.parametrize("nbytes", [10, EAGER_MAX + 1])
@pytest.mark.parametrize("source", range(RANKS))
def test_a_message_that_is_given_back_goes_to_a_receive_that_waits(
    source: int, nbytes: int
) -> None:
    machine = Matching()
    machine.send(2, source, 1, nbytes)
    machine.send(2, source, 1, nbytes)
    first = machine.matched_probe(2, source, 1)
    second = machine.matched_probe(2, ANY, ANY)
    machine.receive(2, ANY, 1, 40_000)
    machine.receive(2, source, ANY, None)
    machine.drop_matched(second)
    machine.drop_matched(first)
    machine.check_end()


@pytest.mark.usefixtures("fabric")
@pytest.mark.parametrize("source", [0, 1, ANY])
def test_many_of_each(source: int | None) -> None:
    """Lists that are long enough for an index, beside wildcards, and drained in another order."""
    machine = Matching()
    sender = source or 0
    machine.receive(2, ANY, ANY, 20)
    machine.receive_many(2, source, 100, 64)
    machine.receive(2, source, ANY, 20)
    for place in reversed(range(110)):
        machine.send(2, sender, place * 64, 10)
    machine.send_many(2, sender, 150, 1)
    machine.probe_many(2, source, 150, 1)
    held = [machine.matched_probe(2, source, tag) for tag in (149, 0, 75)]
    for message in held:
        machine.drop_matched(message)
    machine.receive_many(2, source, 150, 1)
    machine.check_end()


@pytest.mark.usefixtures("fabric")
@pytest.mark.parametrize("nbytes", [10, EAGER_MAX + 1])
@pytest.mark.parametrize("source", range(RANKS))
def test_it_may_go_to_one_that_was_left_to_the_fabric(source: int, nbytes: int) -> None:
    machine = Matching()
    machine.send(2, source, 1, nbytes)
    held = machine.matched_probe(2, source, 1)
    machine.receive(2, source, 0, 40_000)
    machine.receive(2, source, 1, 40_000)
    machine.receive(2, source, 1, 40_000)
    machine.receive(2, ANY, ANY, None)
    machine.drop_matched(held)
    machine.check_end()


@pytest.mark.usefixtures("fabric")
@pytest.mark.parametrize("nbytes", [10, EAGER_MAX + 1])
@pytest.mark.parametrize("source", range(RANKS))
def test_a_receive_stays_behind_an_earlier_one_of_any_source(source: int, nbytes: int) -> None:
    """Also when a later receive, which the sender or the fabric had got, leaves the queue."""
    machine = Matching()
    machine.receive(2, ANY, 1, 40_000)
    machine.receive(2, source, 1, 40_000)
    machine.receive(2, source, 0, 40_000)
    machine.send(2, source, 0, nbytes)
    machine.send(2, source, 1, nbytes)
    machine.check_end()
