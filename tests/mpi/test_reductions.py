"""Reductions of types whose items have gaps: the gaps of the result stay as they were."""

from __future__ import annotations

import pytest

from tests.mpi.programs import Programs

# Items of four doubles, of which the type has the first and the third one.
BEGIN = """
    from mpi4py import MPI
    import numpy as np

    def add(a, b, datatype):
        one, two = (np.frombuffer(it, "d") for it in (a, b))
        two[::4] += one[::4]
        two[2::4] += one[2::4]

    comm = MPI.COMM_WORLD
    op = MPI.Op.Create(add, commute=True)
    pair = MPI.DOUBLE.Create_indexed([1, 1], [0, 2]).Create_resized(0, 32).Commit()

    def items(n, first=0):
        return first + np.arange(4.0 * n).reshape(n, 4)

    def check(got, before, expected):
        assert (got[:, 1::2] == before[:, 1::2]).all(), got
        assert (got[:, ::2] == expected[:, ::2]).all(), got
"""

ALL = """
    own, first, both = items(2, 100 * comm.rank), items(2), 2 * items(2) + 100
    filled = np.full((2, 4), -1.0)

    got = filled.copy()
    comm.Allreduce([own, 2, pair], [got, 2, pair], op=op)
    check(got, filled, both)
    got = own.copy()
    comm.Allreduce(MPI.IN_PLACE, [got, 2, pair], op=op)
    check(got, own, both)
    got = filled.copy()
    comm.Reduce([own, 2, pair], [got, 2, pair] if comm.rank else None, op=op, root=1)
    check(got, filled, both if comm.rank else filled)
    got = own.copy()
    comm.Iscan(MPI.IN_PLACE, [got, 2, pair], op=op).Wait()
    check(got, own, both if comm.rank else own)
    got = filled.copy()
    comm.Exscan([own, 2, pair], [got, 2, pair], op=op)
    check(got, filled, first if comm.rank else filled)

    part = slice(comm.rank, comm.rank + 1)
    got = filled[:1].copy()
    comm.Reduce_scatter_block([own, 1, pair], [got, 1, pair], op=op)  # 1 of each rank
    check(got, filled[:1], both[part])
    got = filled[:1].copy()
    comm.Reduce_scatter([own, 2, pair], [got, 1, pair], [1, 1], op=op)
    check(got, filled[:1], both[part])
    got = own.copy()
    comm.Reduce_scatter_block(MPI.IN_PLACE, [got, 1, pair], op=op)
    check(got[:1], own[:1], both[part])
    check(got[1:], own[1:], own[1:])

    got = filled.copy()
    request = comm.Allreduce_init([own, 2, pair], [got, 2, pair], op=op)
    for _ in range(2):
        request.Start()
        request.Wait()
        check(got, filled, both)
        own += 1
        both += 2
"""

PAIRS = """
    own = np.zeros(3, np.dtype([("value", "d"), ("rank", "i4")], align=True))
    own["value"] = np.arange(3.0) * (1 - 2 * comm.rank)
    own["rank"] = comm.rank
    got = np.empty_like(own)
    comm.Allreduce([own, MPI.DOUBLE_INT], [got, MPI.DOUBLE_INT], op=MPI.MINLOC)
    assert (got["value"] == [0, -1, -2]).all() and (got["rank"] == [0, 1, 1]).all(), got
"""

GROUPS = """
    own = comm.Split(comm.rank)
    inter = own.Create_intercomm(0, comm, 1 - comm.rank)
    other, got = items(2, 100 * (1 - comm.rank)), items(2, 700)
    inter.Allreduce([items(2, 100 * comm.rank), 2, pair], [got, 2, pair], op=op)
    check(got, items(2, 700), other)
    got = items(2, 700)
    inter.Reduce_scatter_block([items(2, 100 * comm.rank), 2, pair], [got, 2, pair], op=op)
    check(got, items(2, 700), other)
    root = MPI.ROOT if comm.rank else 0
    got = items(2, 700)
    inter.Reduce([items(2), 2, pair], [got, 2, pair] if comm.rank else None, op=op, root=root)
    check(got, items(2, 700), items(2) if comm.rank else items(2, 700))
"""

REFUSED = """
    narrow = MPI.DOUBLE.Create_vector(3, 1, 4).Create_resized(0, 8).Commit()
    backward = MPI.DOUBLE.Create_vector(3, 1, -4).Commit()
    negative = MPI.DOUBLE.Create_resized(0, -8).Commit()
    for it in (narrow, backward, negative):
        got = items(3)
        try:
            comm.Allreduce(MPI.IN_PLACE, [got, 1, it], op=op)
        except MPI.Exception as error:
            assert error.Get_error_class() == MPI.ERR_TYPE, error
            assert "extent" in str(error), error
        else:
            raise SystemExit(f"{it.extent} bytes are reduced")
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(ALL, id="all"),
        pytest.param(PAIRS, id="pairs"),
        pytest.param(GROUPS, id="two groups"),
        pytest.param(REFUSED, id="refused"),
    ],
)
def test_gaps_stay(programs: Programs, program: str) -> None:
    ended = programs.run(BEGIN + program)
    assert ended.code == 0, ended.errors
