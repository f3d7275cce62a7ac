"""Memory of the program that was registered with the transports by pin()."""

from __future__ import annotations

import numpy as np
import pytest
from puppets import BOUND, check_echo, echo

import pscompy

LONG = 1 << 18


def echo_three_and_an_object(here):
    echo(here, 3)
    here.c.send_obj(here.c.recv_obj())


def test_pinned_arrays_are_sent_and_received_as_others_are(link):
    field, into = np.arange(float(LONG)), np.zeros(LONG)
    with link.session.pin(field) as pin, link.session.pin(into):
        assert pin.nbytes == field.nbytes
        link.peer.begin(echo_three_and_an_object)
        for part in (slice(None), slice(1000, None), slice(7, LONG - 9)):
            link.c.send(field[part], timeout=BOUND)
            link.c.recv(into[part], timeout=BOUND)
            assert np.array_equal(into[part], field[part])
            into[:] = 0
        link.c.send_obj({"field": field[5:]}, timeout=BOUND)
        assert np.array_equal(link.c.recv_obj(timeout=BOUND)["field"], field[5:])
        link.peer.result()
    assert link.c.stats["rndv_fallback"] == 0
    link.peer.begin(echo, n=1)
    link.c.send(field, timeout=BOUND)  # the array is no longer pinned
    link.c.recv(into, timeout=BOUND)
    assert np.array_equal(into, field)
    link.peer.result()


def test_what_lies_beyond_a_pin_is_not_of_it(link):
    whole = np.arange(float(LONG))
    with link.session.pin(whole[: LONG // 2]):
        link.peer.begin(lambda here: float(here.c.recv_obj()[-1]))
        link.c.send_obj(whole, timeout=BOUND)
        assert link.peer.result() == LONG - 1


def overwrite_first(here):
    (got,) = here.c.recv_obj()
    got[0] = 2
    return float(got.sum())


def test_pinned_memory_is_not_lent(link):
    field = np.ones(LONG)
    with link.session.pin(field):
        request = link.c.isend_obj([field], lend=True)
        link.peer.begin(overwrite_first)
        request.wait(BOUND)
        assert link.peer.result() == LONG + 1
    assert link.c.stats["lend_copied"] == 1
    assert field[0] == 1


def test_pins_come_and_go(open_session):
    session = open_session(POOL_MAX="1M")
    fields = [np.ones(n * 1000) for n in range(1, 30)]
    pins = [session.pin(field) for field in fields]
    block = session.empty(1 << 16)  # pins use no memory of the pool
    for pin in pins[::2]:
        pin.close()
        pin.close()
    again = session.pin(fields[0])
    del block
    assert session.stats["pool_exhausted"] == 0
    assert "closed" in repr(pins[0])
    session.close()
    assert "closed" in repr(again)
    fields[0].resize(2, refcheck=False)  # no pin exports the array any more
    with pytest.raises(pscompy.Closed):
        session.pin(fields[1])


@pytest.mark.parametrize(
    ("buf", "error"),
    [
        (b"read-only", BufferError),
        (np.ones((4, 4))[:, 1], BufferError),
        ("text", TypeError),
        (np.array([None]), TypeError),
        (np.zeros(2, [("a", "i4"), ("b", "O")]), TypeError),
        (np.zeros(3, "M8[s]"), TypeError),
    ],
)
def test_what_cannot_be_pinned(open_session, buf, error):
    with pytest.raises(error):
        open_session().pin(buf)


@pytest.mark.parametrize("kind", [[("O", "i4"), ("bOb", "f8")], "c16", ">f8"])
def test_pins_are_of_any_plain_data(open_session, kind):
    with open_session().pin(np.zeros(2, kind)) as pin:
        assert pin.nbytes == 2 * np.dtype(kind).itemsize


def test_no_bytes(open_session):
    with open_session().pin(bytearray()) as pin:
        assert pin.nbytes == 0


def test_a_session_ends_with_its_pins(link):
    field = np.ones(LONG)
    link.session.pin(field)
    check_echo(link)
    link.session.close()
    field.resize(2, refcheck=False)
