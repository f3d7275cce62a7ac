"""Collectives that are started many times, forced to an algorithm, or checked, by real jobs."""

from __future__ import annotations

import asyncio
import os

import numpy as np
import pytest

import pscompy


def describe_all(world, operand, row):
    """Return every persistent collective with its expected result for operands of this rank that
    begin at `row(rank)`: name -> (request, function of the offset)."""
    rank, size = world.rank, world.size
    ranks = range(size)
    total = lambda offset, of: sum(row(it) + offset for it in of)  # noqa: E731
    spread = np.repeat(operand, 1)
    return {
        "barrier": (world.barrier_init(), lambda offset: None),
        "bcast": (world.bcast_init(spread, root=1), lambda offset: None),
        "allreduce": (world.allreduce_init(operand), lambda offset: total(offset, ranks)),
        "reduce": (
            world.reduce_init(operand, root=2),
            lambda offset: total(offset, ranks) if rank == 2 else None,
        ),
        "scan": (world.scan_init(operand), lambda offset: total(offset, range(rank + 1))),
        "exscan": (
            world.exscan_init(operand),
            lambda offset: total(offset, range(rank)) if rank else None,
        ),
        "reduce_scatter": (
            world.reduce_scatter_init(operand),
            lambda offset: np.split(total(offset, ranks), size)[rank],
        ),
        "gather": (
            world.gather_init(operand),
            lambda offset: np.stack([row(it) + offset for it in ranks]) if rank == 0 else None,
        ),
        "allgather": (
            world.allgather_init(operand),
            lambda offset: np.stack([row(it) + offset for it in ranks]),
        ),
        "scatter": (
            world.scatter_init(operand, np.zeros(len(operand) // size), root=1),
            lambda offset: np.split(row(1) + offset, size)[rank],
        ),
        "alltoall": (
            world.alltoall_init(operand),
            lambda offset: np.concatenate([np.split(row(it) + offset, size)[rank] for it in ranks]),
        ),
    }


def starts_in_other_orders(step, turns):
    """Start persistent collectives in an order of each rank's own, with new contents each time.
    With `step` 2 the operand is not contiguous, so that each start has to read it."""
    with pscompy.World() as world:
        items = 12 * world.size
        row = lambda rank: np.arange(items) * (rank + 1.0)  # noqa: E731
        operand = np.zeros(items * step)[::step]
        made = describe_all(world, operand, row)
        order = np.random.default_rng(world.rank)
        for turn in range(turns):
            operand[:] = row(world.rank) + turn
            names = list(order.permutation(list(made)))
            for name in names:
                made[name][0].start()
            for name in reversed(names):
                request, expected = made[name]
                value, wanted = request.wait(), expected(turn)
                if name == "bcast":
                    continue
                assert (value is None) == (wanted is None), name
                assert wanted is None or (value == wanted).all(), (name, turn, value, wanted)
        print("ok")


def test_persistent_collectives_are_started_in_other_orders(run, script):
    assert run.lines(4, script(starts_in_other_orders, 1, 40)) == ["ok"] * 4


def test_each_start_reads_an_operand_that_is_not_contiguous(run, script):
    assert run.lines(3, script(starts_in_other_orders, 2, 5)) == ["ok"] * 3


def test_starts_of_one_operation_do_not_mix(run, script):
    """A root that runs ahead starts its broadcast again before others have received the last."""

    def runs_ahead():
        with pscompy.World() as world:
            buf = np.zeros(20_000)
            lengths = [world.bcast_init(buf[:n]) for n in (1, 20_000)]
            for turn in range(100):
                for n, request in zip((1, 20_000), lengths, strict=True):
                    if world.rank == 0:
                        buf[:n] = turn * 2 + (n > 1)
                    request.start()
                    request.wait()
                    assert (buf[:n] == turn * 2 + (n > 1)).all()
            print("ok")

    assert run.lines(4, script(runs_ahead)) == ["ok"] * 4


def test_a_persistent_collective_is_a_persistent_request(run, script):
    def uses():
        with pscompy.World() as world:
            request = world.allreduce_init(np.full(3, world.rank))
            assert isinstance(request, pscompy.PersistentRequest)
            assert request.done()
            assert request.wait() is None

            async def awaits():
                request.start()
                return await request

            first = asyncio.run(awaits())
            assert (first == sum(range(world.size))).all()
            request.start()
            while not request.test():
                pass
            assert request.wait() is first
            print("ok")

    assert run.lines(2, script(uses)) == ["ok"] * 2


def test_a_start_is_refused_while_the_operation_is_in_flight(run, script):
    def starts_twice():
        with pscompy.World() as world:
            request = world.barrier_init()
            if world.rank == 1:
                world.recv(source=0)
            request.start()
            if world.rank == 0:
                with pytest.raises(RuntimeError, match="in flight"):
                    request.start()
                world.send(b"", 1)
            request.wait()
            print("ok")

    assert run.lines(2, script(starts_twice)) == ["ok"] * 2


def test_a_number_is_no_operand_of_a_persistent_collective(run, script):
    def gives_numbers():
        with pscompy.World() as world:
            for call in (world.allreduce_init, world.gather_init):
                with pytest.raises(TypeError, match="_init needs an array, which every start"):
                    call(1.5)
            print("ok")

    assert run.lines(2, script(gives_numbers)) == ["ok"] * 2


def test_an_error_of_a_function_does_not_outlast_its_start(run, script):
    """Of two ranks only the root combines."""

    def fails_once():
        with pscompy.World() as world:
            operand = np.ones(4)

            def adds(a, b):
                if a[0] == 2:
                    raise KeyError("two")
                return a + b

            request = world.reduce_init(operand, op=adds)
            for value in (2, 3):
                operand[:] = value
                request.start()
                if value == 2 and world.rank == 0:
                    with pytest.raises(KeyError):
                        request.wait()
                else:
                    value = request.wait()
            assert world.rank or (value == 6).all()
            print("ok")

    assert run.lines(2, script(fails_once)) == ["ok"] * 2


def test_a_closed_communicator_starts_no_persistent_collective(run, script):
    def starts_after_close():
        with pscompy.World() as world:
            other = world.dup()
            request = other.barrier_init()
            request.start()
            request.wait()
            other.close()
            try:
                request.start()
            except pscompy.Closed as error:
                print(error)

    lines = run.lines(2, script(starts_after_close))
    assert lines == [f"<Communicator rank {rank} of 2> was closed" for rank in range(2)]


CHOICES = {
    "bcast": ("tree", "parts"),
    "reduce": ("tree", "parts"),
    "allreduce": ("doubling", "parts"),
    "gather": ("tree", "pairs"),
    "scatter": ("tree", "pairs"),
    "allgather": ("doubling", "pairs"),
}


def agrees_with_numpy(index):
    """Force the algorithm number `index` of every collective that has several."""
    with pscompy.World(
        {f"COLL_{name.upper()}": it[index] for name, it in CHOICES.items()}
    ) as world:
        rank, size = world.rank, world.size
        for name, algorithms in CHOICES.items():
            words = world.explain(name, 8)
            assert f": {algorithms[index]}, which is forced by PSP_COLL_{name.upper()}" in words
        for items in (0, 1, 5, 3000, 30_000):
            rows = [np.arange(items) * (it + 1) for it in range(size)]
            buf = rows[rank].copy()
            assert (world.bcast(buf, root=1) == rows[1]).all()
            assert (world.allreduce(rows[rank]) == sum(rows)).all()
            found = world.reduce(rows[rank], root=1)
            assert rank != 1 or (found == sum(rows)).all()
            found = world.gather(rows[rank], root=1)
            assert rank != 1 or (found == np.stack(rows)).all()
            assert (world.allgather(rows[rank]) == np.stack(rows)).all()
            part = world.scatter(np.concatenate(rows), np.zeros(items, int), root=1)
            assert (part == rows[rank]).all()
        print("ok")


@pytest.mark.parametrize("index", [0, 1])
def test_every_forced_algorithm_gives_the_result_of_numpy(run, script, index):
    assert run.lines(5, script(agrees_with_numpy, index)) == ["ok"] * 5


def test_explain_says_what_each_algorithm_is_for(run, script):
    def explains():
        with pscompy.World() as world:
            print(world.explain("allreduce", 8).replace("\n", ";"))
            print(world.explain("allreduce", 1 << 20).partition("\n")[0])

    lines = run.lines(2, script(explains))
    rows = "tree: for functions of the program, less than 64 KiB;"
    rows += "  doubling: for less than 64 KiB;  parts: for 64 KiB and more"
    assert set(lines) == {
        f"allreduce of 8 B, 2 ranks: doubling;  {rows}",
        "allreduce of 1048576 B, 2 ranks: parts",
    }


def test_an_algorithm_that_a_collective_does_not_have_is_refused():
    with pytest.raises(pscompy.ConfigError, match=r"PSP_COLL_BCAST.*auto, tree, parts"):
        pscompy.World({"COLL_BCAST": "doubling"})


def test_ranks_that_force_different_algorithms_are_refused(run, script):
    """Rank 0 has the default; the others name it, or each other."""

    def disagrees():
        algorithm = {0: "auto", 1: "tree", 2: "parts"}[int(os.environ["PMI_RANK"])]
        with pytest.raises(pscompy.ConfigError) as raised:
            pscompy.World({"COLL_BCAST": algorithm})
        print(raised.value)

    done = run("-n", 3, script(disagrees))
    assert "rank 1 has PSP_COLL_BCAST=tree, rank 0 has none" in done.stdout
    assert "rank 2 has PSP_COLL_BCAST=parts, rank 0 has none" in done.stdout


def test_ranks_that_check_and_others_are_refused(run, script):
    def disagrees():
        with pytest.raises(pscompy.ConfigError, match="has PSP_COLL_CHECK=1, rank 0 has no"):
            pscompy.World({"COLL_CHECK": os.environ["PMI_RANK"] == "1"})
        print("refused")

    assert "refused" in run("-n", 2, script(disagrees)).stdout


def calls_different_things():
    """Each row: what rank 1 calls, what the others call, and how an error names them."""
    a, b = np.zeros(6), np.zeros(7)
    kinds = np.zeros(6, np.int64)
    rows = [
        (
            lambda: world.bcast(a, root=1),
            lambda: world.allreduce(a),
            (
                "rank 0 has called allreduce of 48 B, sum of float64 (algorithm doubling), "
                "rank 1 bcast of 48 B, root 1 (algorithm tree)"
            ),
        ),
        (lambda: world.barrier(), lambda: world.allgather(a), "allgather of 48 B"),
        (lambda: world.bcast(a, root=2), lambda: world.bcast(a), "48 B, root 2"),
        (lambda: world.allreduce(b), lambda: world.allreduce(a), "allreduce of 56 B"),
        (lambda: world.allreduce(kinds), lambda: world.allreduce(a), "sum of int64"),
        (lambda: world.allreduce(a, op="max"), lambda: world.allreduce(a), "max of float64"),
        (lambda: world.scan(a, op=np.hypot), lambda: world.scan(a), "scan of 48 B, a function"),
        (
            lambda: world.allgather(a[:2], counts=[2, 2, 2]),
            lambda: world.allgather(a[:1], counts=[1] * 3),
            "parts with counts",
        ),
        (lambda: world.iallreduce(b).wait(), lambda: world.iallreduce(a).wait(), "of 56 B"),
        (lambda: world.allreduce(1), lambda: world.allreduce(a), "24 B, sum of numbers"),
        (lambda: world.allreduce(1, op="max"), lambda: world.allreduce(1), "max of numbers"),
        (lambda: world.scan(1), lambda: world.allreduce(1), "rank 1 scan of 24 B, sum of numbers"),
        (lambda: world.allgather(1), lambda: world.allreduce(1), "rank 1 allgather of 24 B ("),
        (lambda: world.reduce(1), lambda: world.gather(1), "rank 1 reduce of 24 B, sum of numbers"),
    ]
    with pscompy.World() as world:
        for odd, even, words in rows:
            with pytest.raises(pscompy.Mismatch) as raised:
                (odd if world.rank == 1 else even)()
            assert words in str(raised.value), raised.value
            assert "rank 0 has called" in str(raised.value)
            assert raised.value.rank == 1
            assert world.allreduce(1) == 3
    print("told")


def test_with_a_check_all_ranks_learn_what_two_have_called(run, script):
    assert run.lines(3, script(calls_different_things), PSP_COLL_CHECK="1") == ["told"] * 3


def test_a_report_names_a_persistent_collective(run, script):
    def waits():
        with pscompy.World() as world:
            requests = [world.barrier_init() for _ in range(2)]
            if world.rank == 0:
                requests[1].start()
                print(world.session.dump())
                world.send(b"", 1)
            else:
                world.recv(source=0)
                requests[1].start()
            requests[1].wait()

    reported = [it for it in run.lines(2, script(waits)) if "barrier, persistent number 1" in it]
    assert len(reported) == 1
    assert reported[0].endswith(", waits for rank 1")
