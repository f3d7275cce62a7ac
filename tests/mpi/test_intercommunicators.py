"""Programs with inter-communicators, and with mpi4py.futures, which uses them."""

from __future__ import annotations

import pytest

from tests.mpi.programs import Programs

TRANSPORTS = [pytest.param("1", id="shm"), pytest.param("0", id="tcp")]

# Two groups: the even ranks and the odd ones. Rank 1 of the job is the leader of the odd ones.
GROUPS = """
from mpi4py import MPI
import ctypes, os
import numpy as np

library = ctypes.PyDLL(os.environ["MPI4PY_LIBMPI"])  # for what mpi4py has no method for
handle = MPI._handleof
world = MPI.COMM_WORLD
side = world.rank % 2
local = world.Split(side)
comm = local.Create_intercomm(0, world, 1 - side)
n_local, n_remote = local.size, comm.remote_size
# the number in the world of each rank of the other group
others = range(1 - side, world.size, 2)
"""

KNOWN = """
assert comm.is_inter and not local.is_inter
assert (comm.rank, comm.size, n_remote) == (local.rank, local.size, world.size - local.size)
whole = world.Get_group()
for group, first in (comm.Get_group(), side), (comm.Get_remote_group(), 1 - side):
    assert group.Translate_ranks(None, whole) == list(range(first, world.size, 2))
print("known")
"""

MESSAGES = """
status = MPI.Status()
requests = [comm.isend((world.rank, peer), peer, tag=peer) for peer in range(n_remote)]
seen = []
for _ in range(n_remote):
    comm.Probe(MPI.ANY_SOURCE, comm.rank, status)
    number, to = comm.recv(source=status.source, tag=MPI.ANY_TAG)
    assert (others[status.source], comm.rank) == (number, to)
    seen.append(status.source)
MPI.Request.waitall(requests)
assert sorted(seen) == list(range(n_remote))
try:
    comm.send(None, n_remote)
except MPI.Exception as error:
    print(error.Get_error_class() == MPI.ERR_RANK)
"""

DERIVED = """
dup = comm.Dup()
assert MPI.Comm.Compare(comm, comm) == MPI.IDENT
assert MPI.Comm.Compare(comm, dup) == MPI.CONGRUENT
assert MPI.Comm.Compare(comm, world) == MPI.UNEQUAL
merged = dup.Merge(high=side == 0)
assert merged.allgather(world.rank) == [*range(1, world.size, 2), *range(0, world.size, 2)]
assert MPI.Comm.Compare(merged, world) == MPI.SIMILAR
dup.Free()
# the first rank of each group, then the others, backwards
part = comm.Split(comm.rank == 0, -comm.rank)
wanted = [others[0]] if comm.rank == 0 else [*reversed(others[1:])]
if wanted:
    assert part.allgather(world.rank) == wanted
else:
    assert part == MPI.COMM_NULL
# a color that only one group has
assert comm.Split(side, 0) == MPI.COMM_NULL
group = comm.Get_group()
ends = comm.Create(group.Incl([local.size - 1]))
if comm.rank == local.size - 1:
    assert ends.allgather(world.rank) == [others[-1]]
else:
    assert ends == MPI.COMM_NULL
shared = comm.Split_type(MPI.COMM_TYPE_SHARED)
assert shared.remote_size == n_remote
assert comm.Split_type(MPI.UNDEFINED) == MPI.COMM_NULL
# an inter-communicator through which the leaders of another one meet
made = ctypes.c_uint()
assert library.MPI_Intercomm_create(handle(local), 0, handle(comm), 0, 0, ctypes.byref(made)) == 0
other = MPI.Comm.fromhandle(made.value)
assert MPI.Comm.Compare(comm, other) == MPI.CONGRUENT
pair = MPI.Intercomm.Create_from_groups(comm.Get_group(), 0, comm.Get_remote_group(), 0)
assert MPI.Comm.Compare(comm, pair) == MPI.CONGRUENT
alone = MPI.Intracomm.Create_from_group(comm.Get_group())
assert MPI.Comm.Compare(alone, local) == MPI.CONGRUENT
# each rank gives the group that it is in
half = world.Create(comm.Get_group())
assert MPI.Comm.Compare(half, local) == MPI.CONGRUENT
print("derived")
"""

# Each rank gives what its number in the world says.
COLLECTIVES = """
def role(root, group):
    "The root that this rank gives, if it is rank `root` of that group."
    if side != group:
        return root
    return MPI.ROOT if comm.rank == root else MPI.PROC_NULL

def number(rank):
    return np.arange(3.0) + 10 * rank

mine, sum_of_others = number(world.rank), sum(map(number, others))
every = np.concatenate([number(it) for it in others])
for length in (3, 30_000):
    for group in (0, 1):
        data = np.full(length, side)
        comm.Bcast(data, role(0, group))
        assert (data == group).all()
for group in (0, 1):
    root = role(len(range(group, world.size, 2)) - 1, group)
    got = np.zeros(3 * n_remote)
    comm.Gather(mine, got, root)
    assert (got == (every if root == MPI.ROOT else 0)).all()
    got = np.zeros(3)
    comm.Scatter(np.arange(3.0 * n_remote), got, root)
    begin = 3 * comm.rank
    assert (got == (np.arange(begin, begin + 3) if side != group else 0)).all()
    got = np.zeros(3)
    comm.Reduce(mine, got, MPI.SUM, root)
    assert (got == (sum_of_others if root == MPI.ROOT else 0)).all()
got = np.zeros(3 * n_remote)
comm.Allgather(mine, got)
assert (got == every).all()
got = np.zeros(3)
comm.Allreduce(mine, got, MPI.SUM)
assert (got == sum_of_others).all()
sent, got = np.arange(n_remote) + 100 * world.rank, np.zeros(n_remote, int)
comm.Alltoall(sent, got)
assert (got == [100 * it + comm.rank for it in others]).all()
comm.Barrier()
comm.Ibarrier().Wait()
print("done")
"""

# Rank r has r + 1 items.
LENGTHS = """
counts = [it + 1 for it in others]
every = np.concatenate([np.full(it + 1, it) for it in others])
mine = np.full(world.rank + 1, world.rank)
got = np.zeros(sum(counts), int)
comm.Allgatherv(mine, [got, counts])
assert (got == every).all()
for group in (0, 1):
    root = (MPI.PROC_NULL if comm.rank else MPI.ROOT) if side == group else 0
    got = np.zeros(sum(counts), int)
    comm.Gatherv(mine, [got, counts], root)
    assert (got == (every if root == MPI.ROOT else 0)).all()
    got = np.zeros(world.rank + 1, int)
    comm.Scatterv([every, counts], got, root)
    assert (got == (world.rank if root == 0 else 0)).all()
sent = np.full(sum(counts), world.rank)
got = np.zeros(n_remote * (world.rank + 1), int)
comm.Alltoallv([sent, counts], [got, [world.rank + 1] * n_remote])
assert (got == np.repeat(others, world.rank + 1)).all()
types = [MPI.INT64_T] * n_remote
places = [8 * it for it in range(n_remote)]
got = np.zeros(n_remote, int)
comm.Alltoallw([sent, [1] * n_remote, places, types], [got, [1] * n_remote, places, types])
assert (got == list(others)).all()
# as many items for both groups, each of whose ranks takes the same share of them
sent = np.arange(2 * n_local * n_remote) * (world.rank + 1)
share = 2 * n_remote
got = np.zeros(share, int)
comm.Reduce_scatter_block(sent, got)
begin, factor = comm.rank * share, sum(it + 1 for it in others)
assert (got == np.arange(begin, begin + share) * factor).all()
lengths = [share - 1] * (n_local - 1) + [share + n_local - 1]
begin = sum(lengths[: comm.rank])
got = np.zeros(lengths[comm.rank], int)
comm.Reduce_scatter(sent, got, lengths)
assert (got == np.arange(begin, begin + lengths[comm.rank]) * factor).all()
print("done")
"""

# An operation that does not commute: the digits of the ranks, one behind the other.
ORDER = """
def join(one, other, type):
    one, other = (np.frombuffer(it, "i8") for it in (one, other))
    digits = 10 ** np.char.str_len(other.astype(str))
    other[:] = one * digits + other

operation = MPI.Op.Create(join, commute=False)
got = np.zeros(2, "i8")
request = comm.Iallreduce(np.full(2, world.rank + 1), got, operation)
request.Wait()
assert (got == int("".join(str(it + 1) for it in others))).all(), got
print("ordered")
"""

# Ranks wait for operations that they have begun in one order in different orders.
BEGUN = """
data = [np.full(1000, it + 10 * side) for it in range(20)]
got = [np.zeros_like(it) for it in data]
requests = [comm.Iallreduce(one, other, MPI.MAX) for one, other in zip(data, got)]
for request in requests if world.rank % 3 else reversed(requests):
    request.Wait()
assert all((it == i + 10 * (1 - side)).all() for i, it in enumerate(got))
column = MPI.DOUBLE.Create_vector(4, 1, 3).Commit()
matrix = np.arange(12.0).reshape(4, 3) * (1 + side)
root = (MPI.PROC_NULL if comm.rank else MPI.ROOT) if side else 0
repeated = comm.Bcast_init([matrix, 1, column], root)
for turn in range(3):
    if root == MPI.ROOT:
        matrix[:, 0] = turn
    repeated.Start()
    repeated.Wait()
    assert (matrix[:, 0] == turn).all() or root == MPI.PROC_NULL
assert matrix[1, 1] == 4 * (1 + side)
repeated.Free()
print("done")
"""

REFUSED = """
def class_of(call, *arguments):
    try:
        code = call(*arguments)
    except MPI.Exception as error:
        code = error.Get_error_code()
    return MPI.Get_error_class(code)

data, made = np.zeros(1), ctypes.c_int()
assert class_of(comm.Bcast, data, n_remote) == MPI.ERR_ROOT
assert class_of(local.Create_intercomm, local.size, world, 0) == MPI.ERR_RANK
assert class_of(local.Create_intercomm, 0, world, world.size) == MPI.ERR_RANK
assert class_of(MPI.COMM_SELF.Create_intercomm, 0, world, world.rank) == MPI.ERR_COMM
double, op, result = handle(MPI.DOUBLE), handle(MPI.SUM), ctypes.byref(made)
empty = ctypes.c_void_p(data.ctypes.data)
both, one = handle(comm), handle(local)
assert class_of(library.MPI_Scan, empty, empty, 1, double, op, both) == MPI.ERR_COMM
assert class_of(library.MPI_Intercomm_create, both, 0, both, 0, 0, result) == MPI.ERR_COMM
made.value = 1
assert class_of(library.MPI_Cart_create, both, 1, result, result, 0, result) == MPI.ERR_COMM
assert class_of(library.MPI_Allreduce, ctypes.c_void_p(-1), empty, 1, double, op, both) \
    == MPI.ERR_BUFFER
assert class_of(library.MPI_Comm_remote_size, one, result) == MPI.ERR_COMM
assert class_of(library.MPI_Comm_remote_group, one, result) == MPI.ERR_COMM
assert class_of(library.MPI_Intercomm_merge, one, 0, result) == MPI.ERR_COMM
print("refused")
"""


@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(it, id=name)
        for name, it in {
            "known": KNOWN,
            "messages": MESSAGES,
            "derived": DERIVED,
            "collectives": COLLECTIVES,
            "lengths": LENGTHS,
            "order": ORDER,
            "begun": BEGUN,
            "refused": REFUSED,
        }.items()
    ],
)
def test_two_groups(programs: Programs, program: str, ranks: int) -> None:
    ended = programs.run(GROUPS + program, ranks=ranks)
    assert ended.code == 0, ended.errors
    assert len(set(ended.lines)) == 1, ended.lines
    assert len(ended.lines) == ranks


@pytest.mark.parametrize("program", [MESSAGES, COLLECTIVES], ids=["messages", "collectives"])
def test_two_groups_over_tcp(programs: Programs, program: str) -> None:
    ended = programs.run(GROUPS + program, ranks=3, PSP_SHM="0")
    assert ended.code == 0, ended.errors


def test_a_lost_rank_of_the_other_group_is_named(programs: Programs) -> None:
    """Rank 2 of the job is rank 1 of the other group."""
    ended = programs.run(
        GROUPS
        + """
import os, signal

comm.Barrier()
if world.rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
if world.rank == 1:
    for call in (lambda: comm.recv(source=1), lambda: comm.Allgather(np.zeros(1), np.zeros(2))):
        try:
            call()
        except MPI.Exception as error:
            print("rank 2" in str(error), error.Get_error_class(), flush=True)
""",
        "--keep-going",
        ranks=3,
    )
    assert ended.lines == ["True 101", "True 101"], ended.errors


# ---- mpi4py.futures ----

POOL = """
from mpi4py.futures import MPIPoolExecutor
import os

def square(x):
    return x * x, os.getpid()

def fail(x):
    raise KeyError(f"no {x}")

if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        found = list(pool.map(square, range(1000)))
        assert [it for it, _ in found] == [it * it for it in range(1000)]
        workers = {pid for _, pid in found}
        assert os.getpid() not in workers and len(workers) in (1, 2)
        futures = [pool.submit(fail, it) for it in range(3)]
        for it, future in enumerate(futures):
            assert future.exception().args == (f"no {it}",), future.exception()
        long = pool.submit(bytes, 5_000_000)
        assert len(long.result()) == 5_000_000
    try:
        pool.submit(square, 1)
    except RuntimeError:
        print("shut down")
    with MPIPoolExecutor() as other:
        assert list(other.starmap(pow, [(2, 3), (3, 2)])) == [8, 9]
    print("again")
"""


@pytest.mark.parametrize("shm", TRANSPORTS)
def test_a_pool_of_all_ranks(programs: Programs, shm: str) -> None:
    """python -m mpi4py.futures: rank 0 runs the program, the others work for it."""
    ended = programs.run(POOL, module="mpi4py.futures", ranks=3, PSP_SHM=shm)
    assert ended.code == 0, ended.errors
    assert ended.lines == ["again", "shut down"], ended.errors


def test_a_pool_of_a_communicator(programs: Programs) -> None:
    ended = programs.run(
        """
        from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor

        for root in (0, 2):
            with MPICommExecutor(MPI.COMM_WORLD, root=root) as pool:
                if pool is not None:
                    assert MPI.COMM_WORLD.rank == root
                    print(sum(pool.map(abs, range(-200, 0))))
        """,
        ranks=3,
    )
    assert ended.code == 0, ended.errors
    assert ended.lines == ["20100", "20100"]


def test_an_exception_of_the_program_ends_the_pool(programs: Programs) -> None:
    text = """
        from mpi4py.futures import MPIPoolExecutor

        if __name__ == "__main__":
            with MPIPoolExecutor() as pool:
                pool.submit(abs, -1).result()
                raise ValueError("on purpose")
        """
    ended = programs.run(text, module="mpi4py.futures")
    assert ended.code != 0
    assert "on purpose" in ended.errors
