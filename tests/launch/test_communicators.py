"""Communicators that are made of others, by split, create and dup, in real jobs."""

from __future__ import annotations

import os
import random

import pytest

import pscompy
from tests.launch.test_contexts import refused, resident
from tests.launch.test_endpoints import in_threads


def check(comm, members):
    """Let this communicator, whose ranks are these of the World, carry messages and
    collectives."""
    assert comm.size == len(members)
    assert comm.allgather_obj(int(os.environ["PMI_RANK"])) == [*members]
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    sent = [comm.isend(b"%d" % comm.rank, after, 3), comm.isend_obj(comm.rank, before)]
    got, status = comm.recv_status(tag=3, timeout=60)
    assert (bytes(got), status.source) == (b"%d" % before, before)
    assert comm.recv_obj(after, timeout=60) == after
    pscompy.wait_all(sent, timeout=60)
    assert comm.allreduce(1 << comm.rank) == (1 << comm.size) - 1
    assert comm.iprobe() is None


def raised(kind, call, *args, **kwargs):
    """Return the text of the exception that a call raises."""
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    return str(caught.value)


# ---- split ----


def splits():
    with pscompy.World() as world:
        me, ranks = world.rank, range(world.size)
        check(world.split(me % 2), [it for it in ranks if it % 2 == me % 2])
        check(world.split(-7, -me), ranks[::-1])
        check(world.split(1 << 62, key=-(1 << 63) if me == 3 else 0), [3, 0, 1, 2, 4])
        check(world.split(0, [1, 0, 1, 0, 1][me]), [1, 3, 0, 2, 4])
        check(world.split(me), [me])
        assert world.split(None) is None
        few = world.split(None if me in {0, 3} else True, -me)
        assert (few is None) == (me in {0, 3})
        if few is not None:
            check(few, [4, 2, 1])
            check(few.dup(), [4, 2, 1])
            check(few.split(me == 2, key=me), [2] if me == 2 else [1, 4])
            few.close()
        check(world, ranks)
        print("ok")


def test_split_by_color_and_key(run, script):
    assert run.lines(5, script(splits)) == ["ok"] * 5


def splits_endpoints():
    with pscompy.World() as world:
        ends = world.endpoints(2)
        kept = [None, None]

        def split(k, endpoint):
            part = endpoint.split(None if world.rank == k else 0, -world.rank)
            if part is not None:
                members = [it for it in reversed(range(world.size)) if it != k]
                check(part, members)
                kept[k] = part.create(range(part.size))
                check(kept[k], members)
                assert kept[k].session is endpoint.session

        in_threads(split, ends)
        print("ok")


@pytest.mark.parametrize("mode", ["single", "dynamic"])
def test_endpoints_are_split(run, script, mode):
    lines = run.lines(3, *run.python(script(splits_endpoints)), PSP_ENDPOINTS=mode)
    assert lines == ["ok"] * 3


def splits_by_place():
    """Two modules, and nodes whose kernels have other ids: those of ranks 0 to 2, and of the
    others."""
    rank = int(os.environ["PMI_RANK"])
    with pscompy.World({"MSA_MODULE_ID": 1 + rank % 2}) as world:
        check(world.split_by_node(), range(world.size))
        session = world.session
        session._identity = session._identity._replace(host="low" if rank < 3 else "high")
        node = world.split_by_node()
        check(node, [0, 1, 2] if rank < 3 else [3, 4])
        check(world.split_by_module(), range(rank % 2, world.size, 2))
        beside = [it for it in ([0, 1, 2] if rank < 3 else [3, 4]) if it % 2 == rank % 2]
        check(node.split_by_module(), beside)
        print("ok")


def test_split_by_node_and_module(run, script):
    assert run.lines(5, script(splits_by_place)) == ["ok"] * 5


# ---- create ----


def creates():
    """Ranks outside do nothing meanwhile; the world's collectives are not used."""
    lists = [[3, 1], [1, 3], [0, 1, 2, 3], [4, 2], [2], [4, 3, 2, 1, 0], (0, 4), range(1, 4)]
    with pscompy.World() as world:
        for members in random.Random(35).choices(lists, k=60):
            if world.rank in members:
                with world.create(members) as made:
                    check(made, members)
                    part = made.create([made.rank])
                    assert (part.rank, part.size) == (0, 1)
        assert world._collectives.meetings.total() > 20
        check(world, range(world.size))
        print("ok")


def test_create_of_subsets(run, script):
    assert run.lines(5, script(creates)) == ["ok"] * 5


def makes_in_threads(rounds):
    """Threads make communicators of different parents, those of rank 1 in turn, in another
    order."""
    with pscompy.World() as world:
        opened = []
        numbers = world._job.contexts
        open_number = numbers._open

        def note(number):
            opened.append(number)
            open_number(number)

        numbers._open = note
        ranks = range(world.size)
        parents = [world.dup() for _ in range(4)]
        made = [None] * 4

        def make(k, parent):
            if k == 0:
                made[k] = parent.dup(), ranks
            elif k == 1:
                made[k] = (
                    parent.split(world.rank > 0, -world.rank),
                    [0] if world.rank == 0 else [2, 1],
                )
            elif k == 2:
                made[k] = parent.create([2, 0, 1]), [2, 0, 1]
            elif world.rank != 2:
                made[k] = parent.create([1, 0]), [1, 0]

        for number in range(rounds):
            if world.rank == 1 and number % 2:
                for k in reversed(range(4)):
                    make(k, parents[k])
            else:
                in_threads(make, parents)
            for comm, members in filter(None, made):
                check(comm, members)
                comm.close()
        assert opened == sorted(set(opened))
        print(len(opened) > 3 * rounds)


def test_threads_make_communicators_of_different_parents(run, script):
    assert run.lines(3, script(makes_in_threads, 30)) == ["True"] * 3


# ---- create and ranks that do not come ----


def disagrees():
    with pscompy.World() as world:
        text = raised(ValueError, world.create, [0, 1, 2] if world.rank < 2 else [2, 0], timeout=60)
        assert text == "create: rank 0 gives the ranks [0, 1, 2], and rank 2 gives [2, 0]"
        text = raised(ValueError, world.create, [0, 1, 2] if world.rank else [0, 2, 1], timeout=60)
        assert text == "create: rank 0 gives the ranks [0, 2, 1], and rank 2 gives [0, 1, 2]"
        check(world.create([1, 2, 0]), [1, 2, 0])
        print("ok")


def test_members_that_disagree(run, script):
    assert run.lines(3, script(disagrees)) == ["ok"] * 3


def comes_late(late):
    """All members give up if one does; then they meet again."""
    with pscompy.World() as world:
        if world.rank == late:
            world.barrier()
            text = raised(pscompy.Timeout, world.create, [0, 1, 2], 60)
        else:
            text = raised(pscompy.Timeout, world.create, [0, 1, 2], timeout=0.1)
            world.barrier()
        assert text.startswith("create: rank ")
        check(world.create([2, 1, 0], timeout=60), [2, 1, 0])
        print("ok")


@pytest.mark.parametrize("late", [0, 1])
def test_a_member_that_comes_too_late(run, script, late):
    assert run.lines(3, script(comes_late, late)) == ["ok"] * 3


def fails_on_one_rank():
    """Another exception than one of pscompy ends the call of a member."""
    with pscompy.World() as world:
        numbers = world._job.contexts
        if world.rank == 1:
            numbers._bid, bid = lambda call: 1 // 0, numbers._bid
            raised(ZeroDivisionError, world.create, [0, 1, 2], timeout=60)
            numbers._bid = bid
        else:
            text = raised(pscompy.PscomError, world.create, [0, 1, 2], timeout=60)
            assert text.startswith("create: rank 1 has raised ZeroDivisionError(")
        check(world.create([0, 1, 2]), [0, 1, 2])
        print("ok")


def test_a_member_that_fails(run, script):
    assert run.lines(3, script(fails_on_one_rank)) == ["ok"] * 3


def survives(gone, early):
    """Rank `gone` ends before the others call create of the survivors, or while they wait for it
    in create."""
    world = pscompy.World()
    members = [it for it in (3, 1, 0, 2) if it != gone]
    world.barrier()
    if world.rank == gone:
        if not early:
            world.recv(tag=9)
        os._exit(0)
    if early:
        raised(pscompy.PeerLost, world.recv, source=gone, timeout=60)
    else:
        if world.rank == members[0]:
            world.send(b"", gone, tag=9)
        raised(pscompy.PeerLost, world.create, [0, 1, 2, 3], timeout=60)
    world._collectives._begin = None  # whoever calls a collective of the World fails
    made = world.create(members, timeout=60)
    check(made, members)
    check(made.split(made.rank != 1), [members[1]] if made.rank == 1 else members[::2])
    print("ok", flush=True)
    made.barrier()
    world.close()


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("gone", [0, 2])
def test_survivors_make_a_communicator(run, script, gone, early):
    assert run.lines(4, script(survives, gone, early)) == ["ok"] * 3


# ---- close ----


def closes_while_collectives_run():
    with pscompy.World() as world:
        made, kept = world.dup(), world.dup()
        if world.rank == 0:
            running = [
                made.ibcast(bytearray(1 << 22), root=0),
                made.ibarrier(),
                made.iallreduce(1.0, op=lambda a, b: a + b),
                made.ibcast(bytearray(1 << 22), root=1),
            ]
            made.close()
            for request in running[1:]:
                refused(request.wait, 60)
        world.barrier()
        if world.rank == 1:
            made.bcast(bytearray(1 << 22), root=0, timeout=60)
            made.close()
        else:
            refused(running[0].wait, 60)
        for use in (made.barrier, made.ibarrier, made.dup, made.split_by_node):
            refused(use)
        refused(made.split, 0)
        refused(made.create, [0, 1])
        refused(made.endpoints, 1)
        check(kept, [0, 1])
        print("ok")


def test_close_ends_running_collectives(run, script):
    assert run.lines(2, script(closes_while_collectives_run)) == ["ok"] * 2


def makes_many(rounds):
    with pscompy.World() as world:
        for _ in range(2):
            before = resident()
            for _ in range(rounds):
                with (
                    world.dup() as same,
                    world.split(0, -world.rank) as turned,
                    world.create([1, 0]) as created,
                ):
                    for comm in (same, turned, created):
                        comm.barrier()
        print(resident() - before < 1 << 20)


def test_communicators_with_collectives_leave_nothing(run, script):
    assert run.lines(2, script(makes_many, 2500)) == ["True"] * 2


# ---- wrong use ----


def test_the_arguments_of_split():
    with pscompy.World() as world:
        assert world.split(3).size == world.split_by_node().size == 1
        for color in ("a", 1.0, [1]):
            assert raised(TypeError, world.split, color).startswith("split: color is an integer")
        assert raised(TypeError, world.split, 1, None) == "split: key is an integer, not None"
        for number in (1 << 63, -(1 << 63) - 1):
            assert raised(OverflowError, world.split, number).startswith("split: color has 64 bits")
            assert raised(OverflowError, world.split, None, number).startswith("split: key has")
        world.barrier()


def test_the_arguments_of_create():
    with pscompy.World() as world:
        assert world.create([0], timeout=0).size == 1
        for ranks in ([0, 1], [-1]):
            assert "the ranks are 0 to 0" in raised(IndexError, world.create, ranks)
        assert raised(ValueError, world.create, [0, 0]) == "create: a rank is twice in [0, 0]"
        assert "[] are not rank 0" in raised(ValueError, world.create, [])
        raised(TypeError, world.create, ["0"])
        raised(TypeError, world.create, 0)
        raised(TypeError, world.create, [0], timeout="1")
        raised(ValueError, world.create, [0], timeout=-1)
    for call in (world.dup, world.split_by_node, world.split_by_module):
        raised(pscompy.Closed, call)
    raised(pscompy.Closed, world.split, 0)
    raised(pscompy.Closed, world.create, [0])
