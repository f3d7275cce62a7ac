"""Calls of MPI by extensions that hold the GIL: ctypes.PyDLL calls functions as they do."""

from __future__ import annotations

import pytest

from tests.mpi.programs import Programs

# Functions by which all ranks send to each other, wait and reduce; `call` checks the code.
HELD = """
    import ctypes, os
    from mpi4py import MPI

    library = ctypes.PyDLL(os.environ["MPI4PY_LIBMPI"])
    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    world, integer = MPI._handleof(MPI.COMM_WORLD), MPI._handleof(MPI.INT)
    following, previous = (rank + 1) % size, (rank - 1) % size
    Ints, Status = ctypes.c_int * size, ctypes.c_int * 5

    def call(name, *given):
        assert getattr(library, "MPI_" + name)(*given) == 0

    def ring():
        got = Ints()
        calls = [
            ("Ssend", Ints(rank), 1, integer, following, 3, world),
            ("Recv", got, 1, integer, previous, 3, world, Status()),
        ]
        for it in calls if rank else reversed(calls):
            call(*it)
        assert got[0] == previous

    def sum():
        got = Ints()
        call("Allreduce", Ints(rank), got, 1, integer, MPI._handleof(MPI.SUM), world)
        assert got[0] == size * (size - 1) // 2

    def any():
        got = [Ints() for _ in range(size)]
        requests, index = Ints(), ctypes.c_int()
        for peer, it in enumerate(got):
            place = ctypes.byref(requests, 4 * peer)
            call("Irecv", it, 1, integer, peer, 4, world, place)
        for peer in range(size):
            call("Send", Ints(rank), 1, integer, peer, 4, world)
        for _ in range(size):
            call("Waitany", size, requests, ctypes.byref(index), Status())
            assert got[index.value][0] == index.value
"""


@pytest.mark.parametrize(("function", "ranks"), [("ring", 2), ("sum", 4), ("any", 3)])
def test_ranks_that_hold_the_gil_connect_over_tcp(
    programs: Programs, function: str, ranks: int
) -> None:
    """The first use of each pair: the control thread needs the GIL while both ranks wait."""
    program = HELD + f"    {function}()\n    print('done')\n"
    ended = programs.run(program, ranks=ranks, PSP_SHM="0")
    assert ended.lines == ["done"] * ranks, ended.errors


def test_a_subinterpreter_changes_nothing(programs: Programs) -> None:
    """Python's own check of who holds the GIL is off from then on."""
    create = """
    try:
        import _interpreters as interpreters
    except ModuleNotFoundError:
        import _xxsubinterpreters as interpreters

    interpreters.create()
    MPI.COMM_WORLD.Barrier()
    ring()
    print("done")
    """
    ended = programs.run(HELD + create)
    assert ended.lines == ["done"] * 2, ended.errors
