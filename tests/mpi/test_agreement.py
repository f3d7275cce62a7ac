"""Ranks agree on new communicators: while they duplicate others, and if a leader has an error."""

from __future__ import annotations

import pytest

from tests.mpi.programs import Programs

# Calls that ranks make of a communicator at once after two of Idup.
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


def test_the_group_of_a_leader_that_finds_a_rank_lost_gets_the_error(programs: Programs) -> None:
    ended = programs.run(
        """
        from mpi4py import MPI
        import os, signal

        world = MPI.COMM_WORLD
        local = world.Split(world.rank == 2)
        world.Barrier()
        if world.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            local.Create_intercomm(0, world, 2)
        except MPI.Exception as error:
            print(error.Get_error_class(), error, flush=True)
        """,
        "--keep-going",
        ranks=3,
    )
    assert [it.split()[0] for it in ended.lines] == ["101"] * 2, ended.errors
    assert len(set(ended.lines)) == 1, ended.lines


def test_what_another_leader_says_is_looked_at(programs: Programs) -> None:
    """Rank 2 says what it likes for the ranks of its group, by pscompy's own call."""
    ended = programs.run(
        """
        from mpi4py import MPI
        from pscompy_mpi import host

        world = MPI.COMM_WORLD
        local = world.Split(world.rank == 2)
        for said in ([], [2, 2], [-1], [3], [2.0], ["2"], None, {2: 2}, [2, 1]):
            if world.rank == 2:
                with host.state().world.create([0, 2]) as pair:
                    pair.allgather_obj(said)
                continue
            try:
                local.Create_intercomm(0, world, 2)
            except MPI.Exception as error:
                print(error.Get_error_class() == MPI.ERR_COMM)
        """,
        ranks=3,
    )
    assert ended.lines == ["True"] * 18, ended.errors
