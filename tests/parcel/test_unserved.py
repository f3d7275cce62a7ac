"""Actions that a peer never answers, because it has not called serve() or has no such action."""

from __future__ import annotations

import contextlib
import sys
import threading
import time

import pytest

import pscompy
from pscompy.errors import Unsupported
from pscompy.parcel import action
from tests.launch.ranks import own_rank
from tests.waiting import expect_soon, stay


@pscompy.action(name="far:nothing")
def nothing():
    pass


@pytest.fixture
def pair():
    """A session, and its connection to another one, which does not serve."""
    with pscompy.Session() as here, pscompy.Session() as there:
        yield here, here.connect(there.listen().address)


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def nobody_serves(endpoints):
    @pscompy.action(name="far:away")
    def away():
        return 1

    world = pscompy.World()
    group = world.endpoints(2)[1] if endpoints else world
    if world.rank == 1:
        stay()
    try:
        group.with_options(timeout=2).call(1, away)
    except pscompy.PscomError as error:
        say(f"{type(error).__name__}: {error}")
    world.abort(3)


@pytest.mark.parametrize("endpoints", [False, True], ids=["world", "endpoints"])
def test_a_timeout_names_the_action_the_rank_and_the_reason(run, script, endpoints):
    done = run("-n", 2, script(nobody_serves, endpoints))
    told = "action far:away of rank 1: not ended within 2 s; rank 1 has not called serve()"
    assert f"Timeout: {told}" in done.stdout.splitlines(), done
    assert "action far:away waits: rank 1 has not called serve()" in done.stderr


def test_a_rank_of_a_communicator_of_fewer_ranks(run, script):
    def calls_in_its_module():
        @pscompy.action(name="far:away")
        def away():
            return 1

        world = pscompy.World({"MSA_MODULE_ID": 2 if own_rank() else 1})
        module = world.split_by_module()
        if world.rank != 1:
            stay()
        try:
            module.with_options(timeout=2).call(1, away)
        except pscompy.PscomError as error:
            say(error)
        world.abort(3)

    done = run("-n", 3, script(calls_in_its_module))
    assert done.stdout.endswith("; rank 2 has not called serve()\n"), done


@pytest.mark.parametrize("way", ["directly", "through_a_future"])
def test_a_call_whose_peer_closes_says_that_nobody_served(run, script, way):
    def closes_unserved(way):
        @pscompy.action(name="far:away")
        def away():
            return 1

        world = pscompy.World()
        if world.rank == 1:
            world.recv(source=0)
            world.close()
            stay()
        pending = world.submit(1, away)
        expect_soon(lambda: world._action_peer_of(1).doubt)
        world.send(b"", dest=1)
        try:
            world.call(1, away) if way == "directly" else pending.result()
        except pscompy.PscomError as error:
            say(error)
        world.abort(3)

    done = run("-n", 2, script(closes_unserved, way))
    # its connection says so, or the launcher before it
    told = ("closed", "rank 1 has left its World")
    assert done.stdout.endswith(tuple(f"{it}; rank 1 has not called serve()\n" for it in told)), (
        done
    )


def test_a_long_action_of_a_rank_that_serves_is_not_doubted(run, script):
    def takes_long():
        @pscompy.action(name="far:slow")
        def slow():
            time.sleep(1.5)
            return "slow"

        with pscompy.World() as world:
            if world.rank == 1:
                with contextlib.suppress(pscompy.Closed):
                    world.serve()
            else:
                say(world.call(1, slow))
                world.abort(0)

    done = run("-n", 2, script(takes_long))
    assert "slow" in done.stdout
    assert "serve()" not in done.stderr


def test_actions_of_similar_names_are_proposed():
    @pscompy.action(name="jobs:compute")
    def compute():
        return 1

    with pscompy.Session() as session:
        service = session._plain.service()
        with pytest.raises(Unsupported, match=r"'jobs:compte' is .* here: did you mean 'jobs:comp"):
            service.resolve("jobs:compte")
        with pytest.raises(Unsupported, match=r"did you mean 'jobs:compute'"):
            service.resolve("__main__:compute")
        with pytest.raises(Unsupported, match=r"registered here$"):
            service.resolve("?")
    assert action.nearest("jobs:compute")[0] == "jobs:compute"


def test_a_peer_outside_a_world_is_asked_for():
    @pscompy.action(name="far:plain")
    def plain():
        return 1

    with pscompy.Session() as here, pscompy.Session() as there:
        peer = here.connect(there.listen().address)
        with pytest.raises(
            pscompy.Timeout, match=r"far:plain of .*2 s; .* has it called serve\(\)"
        ):
            peer.with_options(timeout=2).call(plain)


def test_many_calls_of_one_peer_have_one_alarm(pair):
    here, peer = pair
    futures = [peer.submit(nothing) for _ in range(100)]
    alarms = here._plain.service()._alarms
    assert alarms._queued.qsize() + len(alarms._heap) <= 2  # the other one is that of Alarms.soon
    for ended in (0, -1):
        futures[ended].cancel()
    expect_soon(lambda: peer._actions.doubt)


def test_a_peer_is_doubted_again_after_a_call_for_which_nobody_waits(pair):
    _, peer = pair
    peer.submit(nothing).cancel()
    expect_soon(lambda: not peer._actions.unanswered)
    assert not peer._actions.doubt
    waits = peer.submit(nothing)
    expect_soon(lambda: peer._actions.doubt)
    assert not waits.done()


class SlowLauncher:
    """A `Presence` whose launcher does not answer."""

    def __init__(self):
        self.answers = threading.Event()

    def announce(self):
        self.answers.wait(60)

    def accepts(self, source):
        self.answers.wait(60)


def test_a_slow_launcher_holds_up_no_time_limit(pair):
    here, peer = pair
    here._plain._presence = launcher = SlowLauncher()
    try:
        for seconds in (0.01, 1.2):  # before and after the first doubt
            with pytest.raises(pscompy.Timeout):
                peer.with_options(timeout=seconds).submit(nothing).result(20)
            assert not launcher.answers.is_set()
    finally:
        launcher.answers.set()


def test_a_driver_that_cannot_be_started_is_started_later(pair, monkeypatch):
    _, peer = pair

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limits:
        limits.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            peer.submit(nothing)
    with pytest.raises(pscompy.Timeout, match="far:nothing"):
        peer.with_options(timeout=0.01).submit(nothing).result(20)
