"""Reports of ranks that have ended, and addresses that a control thread must not wait for."""

from __future__ import annotations

import threading

from peers import Peer, world
from test_node_connect import node

from pscompy import Closed, PeerLost
from pscompy.api.c.guard import guard

ENDED = PeerLost("rank 1 has ended", peer="rank 1")


def looks(peer: Peer) -> int:
    """The number of timers that will look for receives that nobody can satisfy."""
    timers = [timer for _, _, timer in peer._control._thread._timers]
    return len([timer for timer in timers if timer.function.__name__ == "_end_hopeless"])


def test_a_rank_that_is_reported_several_times_is_looked_after_once():
    with world(2) as ranks:
        control = ranks[0]._control
        control._n_others = 1
        for reason in (Closed("rank 1 has left its World"), ENDED, ENDED):
            control.rank_ended(1, reason)
        control._thread.run(int)
        assert control.is_last
        assert looks(ranks[0]) == 1


def test_a_report_while_the_session_begins_to_close_fails_nothing(caplog):
    with world(2) as ranks:
        control = ranks[0]._control
        control._find_peer = lambda _: ranks[0]._new_record(rank=1)  # as Job.record does
        ranks[0]._closing = True  # as Session._shut does first
        control.rank_ended(1, ENDED)
        control._thread.run(int)
        ranks[0]._closing = False
    assert "failed" not in caplog.text


def test_a_report_does_not_wait_for_a_lock():
    """The thread that reports holds the lock of the launcher's connection."""
    with world(2) as ranks:
        control = ranks[0]._control
        reported = threading.Event()

        def report() -> None:
            control.rank_ended(1, ENDED)
            reported.set()

        with control._lock:
            threading.Thread(target=report).start()
            assert reported.wait(60)


def test_a_launcher_that_is_slow_holds_nothing_up():
    """A finalizer begins to connect while its thread is inside, so the thread asks nobody."""
    known, asked = threading.Event(), threading.Event()
    with node({"SHM": 0}, {"SHM": 0}) as ranks:
        record = ranks[0].peers[1]._record
        resolve = record.resolve

        def slowly() -> str:
            asked.set()
            assert known.wait(60)
            return resolve()

        record.resolve = slowly
        with guard:
            ranks[0].peers[1].isend(b"first")
        assert asked.wait(60)
        passed = threading.Event()
        ranks[0]._control._thread.call(passed.set)
        assert passed.wait(10)
        known.set()
        assert bytes(ranks[1].peers[0].recv(timeout=60)) == b"first"
