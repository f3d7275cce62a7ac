"""Receives that the program frees before they have ended: their messages arrive all the same."""

from __future__ import annotations

import pytest

from tests.mpi.programs import Programs

LEARNS = {
    "a receive": ("comm.recv(source=1)", "comm.send(None, 0)"),
    "a send": ("comm.ssend(None, 1)", "comm.recv(source=0)"),
    "a request": ("comm.issend(None, 1).wait()", "comm.recv(source=0)"),
    "a barrier": ("comm.Barrier()", "comm.Barrier()"),
    "before it is freed": ("comm.recv(source=1); request.Free()", "comm.send(None, 0)"),
}


@pytest.mark.parametrize(("learns", "tells"), LEARNS.values(), ids=LEARNS)
def test_a_freed_receive_delivers(programs: Programs, learns: str, tells: str) -> None:
    """Runs at unequal distances; a second freed receive stays in flight."""
    free = "" if "Free" in learns else "request.Free()"
    ended = programs.run(
        f"""
        from mpi4py import MPI
        import numpy as np

        comm, n = MPI.COMM_WORLD, 100
        at = np.cumsum(np.arange(n) % 3 + 2)
        runs = MPI.DOUBLE.Create_indexed_block(1, at).Commit()
        got, other = np.zeros((2, at[-1] + 1))
        if comm.rank == 0:
            comm.Irecv([other, 1, runs], 1, tag=9).Free()
            request = comm.Irecv([got, 1, runs], 1, tag=3)
            {free}
        comm.Barrier()
        if comm.rank == 1:
            comm.Send(np.ones(n), 0, tag=3)
            {tells}
        else:
            {learns}
            print(got.sum() == n, (got[at] == 1).all())
        comm.Barrier()
        if comm.rank == 1:
            comm.Send(np.ones(n), 0, tag=9)
        """
    )
    assert ended.code == 0, ended.errors
    assert ended.lines == ["True True"]
