"""Chunks of an object that are offered together, in its head."""

from __future__ import annotations

import helpers
import numpy as np
import pytest
from puppets import BOUND, check_echo, echo_objects
from test_object_errors import raw

import pscompy
from pscompy.parcel import archive
from pscompy.parcel.pickling import Pickle
from tests.waiting import expect_soon

COUNT, LONG = 10, 1 << 13  # arrays of 64 KiB
SHORT = 1 << 9  # arrays of 4 KiB, which are sent eagerly
NAMES = ("rndv_rts", "rndv_fin", "offered", "fetched")


@pytest.fixture
def link(connect, transport):
    return connect(transport, RENDEZVOUS="8k")


def arrays(count=COUNT, long=LONG):
    return [np.full(long, n, float) for n in range(count)]


def mixed():
    return [array for pair in zip(arrays(long=SHORT), arrays(), strict=True) for array in pair]


def counts(here):
    return {name: here.c.stats[name] for name in NAMES}


def equal(made, sent):
    return all(np.array_equal(a, b) for a, b in zip(made, sent, strict=True))


def send(link, obj):
    link.c.send_obj(obj, timeout=BOUND)


def isend(link, obj):
    link.c.isend_obj(obj).wait(BOUND)


@pytest.mark.parametrize("made", [arrays, mixed])
@pytest.mark.parametrize("post", [send, isend])
def test_ten_long_arrays_take_no_rts_and_one_fin(link, post, made):
    check_echo(link)
    mine, theirs = counts(link), link.peer(counts)
    link.peer.begin(lambda here: equal(here.c.recv_obj(), made()))
    post(link, made())
    assert link.peer.result()
    mine = {name: counts(link)[name] - mine[name] for name in NAMES}
    theirs = {name: link.peer(counts)[name] - theirs[name] for name in NAMES}
    assert mine == {"rndv_rts": 0, "rndv_fin": 0, "offered": COUNT, "fetched": 0}
    assert theirs == {"rndv_rts": 0, "rndv_fin": 1, "offered": 0, "fetched": COUNT}


def test_arguments_and_results_of_an_action(serving, transport):
    link = serving(transport, RENDEZVOUS="8k")
    link.c.call(helpers.echo)  # the connection is up
    before = counts(link)
    assert equal(link.c.call(helpers.echo, *arrays())[0], arrays())
    after = counts(link)
    assert after["offered"] - before["offered"] == COUNT
    assert after["fetched"] - before["fetched"] == COUNT
    assert after["rndv_rts"] == before["rndv_rts"]


def test_lengths_and_memory_of_all_kinds(link):
    link.peer.begin(echo_objects, 3)
    known = link.session.empty(LONG)
    known[:] = 7
    readonly = np.arange(3 * LONG)
    readonly.flags.writeable = False
    for obj in (
        [np.zeros(0), *arrays(3), known, readonly, np.ones(1 << 17), bytearray(70_000)],
        {"twice": [known, known], "order": np.asfortranarray(np.ones((300, 400)))},
        arrays(5000, 1 << 10),
    ):
        link.c.send_obj(obj, timeout=BOUND)
        made = link.c.recv_obj(timeout=BOUND)
        assert type(made) is type(obj)
        if isinstance(obj, list):
            assert equal(made, obj)
            assert [getattr(it, "flags", made[0].flags).writeable for it in made].count(False) == (
                1 if len(obj) == 8 else 0
            )
        else:
            assert made["twice"][0] is made["twice"][1]
            assert made["order"].flags.f_contiguous
    link.peer.result()


def test_an_offer_is_withdrawn_if_its_head_cannot_be_made(link, monkeypatch):
    def fail(pieces):
        raise MemoryError("no head")

    check_echo(link)
    before = link.session.stats["requests_used"]
    monkeypatch.setattr(archive, "_joined", fail)
    with pytest.raises(MemoryError, match="no head"):
        link.c.send_obj([*arrays(), np.zeros(600)])
    expect_soon(lambda: link.session.stats["requests_used"] == before)


def test_a_receive_that_is_given_back_loses_no_chunk(link):
    check_echo(link)
    link.peer.begin(lambda here: here.c.send_obj(mixed()))
    for _ in range(3):
        request = link.c.irecv_obj()
        expect_soon(lambda: link.c.iprobe() or request.status is not None)  # noqa: B023
        request._requeue()
    assert equal(link.c.recv_obj(timeout=BOUND), mixed())
    link.peer.result()
    check_echo(link)


def test_a_receiver_that_dies_before_the_fetch(link):
    check_echo(link)
    request = link.c.isend_obj(arrays())
    link.peer(lambda here: here.c.probe_obj(timeout=BOUND))
    link.peer.kill()
    with pytest.raises((pscompy.PeerLost, pscompy.Closed)):
        request.wait(BOUND)


def test_a_sender_that_dies_before_the_fetch(link):
    check_echo(link)
    link.peer(lambda here: here.c.isend_obj(arrays()) and None)
    link.c.probe_obj(timeout=BOUND)
    link.peer.kill()
    with pytest.raises((pscompy.PeerLost, pscompy.Closed, pscompy.TransportError)):
        link.c.recv_obj(timeout=BOUND)


# ---- offers that lie ----


def forged(chunks, offer, eager=0):
    made = archive.dump(chunks, Pickle(), 4096)
    return b"".join(made.pack(1, 0, lambda _: offer, eager)[0])


def refuse(here):
    try:
        here.c.recv_obj()
    except (pscompy.ProtocolError, MemoryError) as error:
        return type(error).__name__
    return None


@pytest.mark.parametrize("change", [b"", b"\0", "cut", "other lengths", "more chunks", "none"])
def test_what_is_no_offer_of_these_chunks_is_refused(link, change):
    check_echo(link)
    heads, chunks = raw(link.c)
    request, offer = chunks._offer(arrays())
    fields, eager = arrays(), 0
    if isinstance(change, bytes):
        offer = offer + change if change else b"?"
    elif change == "cut":
        offer = offer[:-1]
    elif change == "none":
        eager = 1 << 20
    else:
        fields = arrays(10, LONG + 1) if change == "other lengths" else arrays(11)
    heads.isend(forged(fields, offer, eager))
    assert link.peer(refuse) == "ProtocolError"
    assert request.cancel()
    check_echo(link)


def absurd(offer, nbytes=1 << 62):
    """A head with this offer of two chunks, for which no receiver has memory."""
    head = archive._HEAD.pack(b"PCL\x01", 1, 2, len(offer), 0, b"pickle\0\0")
    return head + archive._ENTRY.pack(nbytes, archive._OFFERED, 0) * 2 + offer


def test_a_receiver_without_memory_ends_the_request_of_the_sender(link):
    check_echo(link)
    heads, chunks = raw(link.c)
    request, offer = chunks._offer(arrays(2))
    heads.isend(absurd(offer))
    assert link.peer(refuse) == "MemoryError"
    with pytest.raises(MemoryError):
        request.wait(BOUND)
    check_echo(link)


@pytest.mark.parametrize("nbytes", [1 << 62, 1 << 63])
def test_a_call_that_exceeds_memory_is_answered_like_any_other(serving, nbytes):
    link = serving()
    link.c.call(helpers.echo)
    links = link.c._action_peer()
    number = next(links.numbers)
    answer = link.c._context.service()._answer_of(links, number)
    links.calls.heads.isend(absurd(b"?", nbytes), number << 1)
    good, (_, text) = answer.wait(BOUND)
    assert not good
    assert "Error" in text
    assert link.c.call(helpers.echo, 7) == ((7,), {})


def test_a_million_chunks_are_refused(link):
    check_echo(link)
    count = 1 << 20
    head = archive._HEAD.pack(b"PCL\x01", 1, count, 1, 0, b"pickle\0\0")
    link.peer.begin(refuse)
    raw(link.c)[0].send(head + archive._ENTRY.pack(1 << 40, 2, 0) * count + b"?")
    assert link.peer.result() == "ProtocolError"
    check_echo(link)
