"""Ranks agree on new communicators, also while they duplicate others."""

from __future__ import annotations

import pytest

from tests.mpi.programs import Programs

# What ranks create of a communicator at once after two calls of Idup.
CREATE = {
    "window": """
comm = world
def create():
    return MPI.Win.Allocate_shared(8, 1, comm=comm)
""",
    "companion": """
comm = world
def create():
    return pscompy_mpi.communicator(comm)
""",
    "one group of two groups": """
comm = world.Split(world.rank == 2).Create_intercomm(0, world, 0 if world.rank == 2 else 2)
def create():
    return comm.Merge()
""",
}


@pytest.mark.parametrize("create", [pytest.param(it, id=name) for name, it in CREATE.items()])
def test_what_follows_an_idup_is_not_confused_with_it(programs: Programs, create: str) -> None:
    """Rank 0 is late for both, so that only the other ranks create at once."""
    ended = programs.run(
        f"""
from mpi4py import MPI
import pscompy_mpi, time

world = MPI.COMM_WORLD
{create}
def late():
    if world.rank == 0:
        time.sleep(0.3)

late()
promised = [comm.Idup(), comm.Idup()]
late()
made = create()
for dup, request in promised:
    request.Wait()
    dup.Barrier()
world.Barrier()
print("agreed")
""",
        ranks=3,
    )
    assert ended.lines == ["agreed"] * 3, ended.errors
