"""Windows on memory that the ranks of a node share, through mpi4py."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.mpi.programs import Programs

TRANSPORTS = [pytest.param("1", id="shm"), pytest.param("0", id="tcp")]
RANKS = [2, 4]
MEMORY = "pscompy shared"  # the name of the memory's file

BEGIN = """
from mpi4py import MPI
import numpy as np
import ctypes, os, pathlib, signal, threading

def raises(error_class, call, *arguments):
    try:
        call(*arguments)
    except MPI.Exception as error:
        assert error.Get_error_class() == error_class, error
        return
    raise AssertionError(f"{call} returned")

node = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
"""


def program(text: str) -> str:
    return BEGIN + textwrap.dedent(text)


@pytest.mark.parametrize("ranks", RANKS)
def test_all_read_what_one_has_written(programs: Programs, ranks: int) -> None:
    ended = programs.run(
        program(
            """
            n = 1000
            win = MPI.Win.Allocate_shared(8 * n if node.rank == 0 else 0, 8, comm=node)
            table = np.frombuffer(win.Shared_query(0)[0], dtype="d")
            assert table.shape == (n,) and not table.any()
            win.Fence()
            if node.rank == 0:
                table[:] = np.arange(n)
            win.Fence()
            print(table.sum())
            win.Fence()
            win.Free()
            """
        ),
        ranks=ranks,
    )
    assert ended.lines == ["499500.0"] * ranks, ended.errors


@pytest.mark.parametrize("ranks", RANKS)
def test_an_exclusive_lock_lets_one_rank_count(programs: Programs, ranks: int) -> None:
    ended = programs.run(
        program(
            """
            win = MPI.Win.Allocate_shared(8 if node.rank == 0 else 0, 8, comm=node)
            counter = np.frombuffer(win.Shared_query(0)[0], dtype="q")
            for _ in range(1000):
                win.Lock(0, MPI.LOCK_EXCLUSIVE)
                counter[0] += 1
                win.Unlock(0)
            win.Fence()
            print(counter[0])
            win.Free()
            """
        ),
        ranks=ranks,
    )
    assert ended.lines == [str(1000 * ranks)] * ranks, ended.errors


@pytest.mark.parametrize("ranks", RANKS)
def test_parts_follow_each_other(programs: Programs, ranks: int) -> None:
    """Each rank gives a size and a unit of its own; MPI_PROC_NULL is the first that has any."""
    ended = programs.run(
        program(
            """
            win = MPI.Win.Allocate_shared(10 * node.rank, 1 + node.rank, comm=node)
            parts = [win.Shared_query(rank) for rank in range(node.size)]
            assert [len(memory) for memory, _ in parts] == [10 * it for it in range(node.size)]
            assert [unit for _, unit in parts] == [1 + it for it in range(node.size)]
            begins = [MPI.Get_address(memory) for memory, _ in parts[1:]]
            assert begins == [begins[0] + 5 * it * (it + 1) for it in range(node.size - 1)]
            first, unit = win.Shared_query(MPI.PROC_NULL)
            assert (MPI.Get_address(first), len(first), unit) == (begins[0], 10, 2)
            np.frombuffer(win.tomemory(), "B")[:] = node.rank
            win.Fence()
            for rank, (memory, _) in enumerate(parts):
                assert bytes(memory) == bytes([rank]) * 10 * rank
            win.Fence()
            raises(MPI.ERR_RANK, win.Shared_query, node.size)
            win.Free()
            print("found")
            """
        ),
        ranks=ranks,
    )
    assert ended.lines == ["found"] * ranks, ended.errors


def test_what_is_known_of_a_window(programs: Programs) -> None:
    ended = programs.run(
        program(
            """
            info = MPI.Info.Create({"alloc_shared_noncontig": "true"})
            win = MPI.Win.Allocate_shared(24, 8, info, node)
            base = MPI.Get_address(win.tomemory())
            assert win.attrs == (base, 24, 8)
            assert (win.flavor, win.model) == (MPI.WIN_FLAVOR_SHARED, MPI.WIN_UNIFIED)
            assert MPI.Group.Compare(win.group, node.Get_group()) == MPI.IDENT
            assert win.info.items() == info.items()
            win.name = "counters"
            assert win.name == "counters"

            deleted = []
            key = MPI.Win.Create_keyval(delete_fn=lambda win, key, value: deleted.append(value))
            assert win.Get_attr(key) is None
            win.Set_attr(key, "mine")
            assert win.Get_attr(key) == "mine"

            called = []
            handler = MPI.Win.Create_errhandler(lambda win, code: called.append(code))
            win.Set_errhandler(handler)
            win.Call_errhandler(MPI.ERR_RMA_RANGE)
            raises(MPI.ERR_LOCKTYPE, win.Lock, 0, 17)
            assert called == [MPI.ERR_RMA_RANGE, MPI.ERR_LOCKTYPE]

            win.Free()
            assert win == MPI.WIN_NULL and deleted == ["mine"]
            print("known")
            """
        )
    )
    assert ended.lines == ["known"] * 2, ended.errors


def test_wrong_calls_are_refused(programs: Programs) -> None:
    ended = programs.run(
        program(
            """
            make = MPI.Win.Allocate_shared
            raises(MPI.ERR_SIZE, make, 8 - 16 * node.rank, 1, MPI.INFO_NULL, node)
            raises(MPI.ERR_DISP, make, 8, node.rank, MPI.INFO_NULL, node)
            raises(MPI.ERR_NO_MEM, make, 1 << 60, 1, MPI.INFO_NULL, node)
            win = make(8, 1, MPI.INFO_NULL, node)
            raises(MPI.ERR_RMA_SYNC, win.Unlock, 0)
            raises(MPI.ERR_RMA_SYNC, win.Unlock_all)
            raises(MPI.ERR_RANK, win.Lock, node.size)
            raises(MPI.ERR_RANK, win.Unlock, -5)
            win.Lock(node.rank)
            raises(MPI.ERR_RMA_SYNC, win.Lock, node.rank)
            raises(MPI.ERR_RMA_SYNC, win.Lock_all)
            raises(MPI.ERR_RMA_SYNC, win.Unlock_all)
            win.Unlock(node.rank)
            win.Lock(MPI.PROC_NULL)
            win.Unlock(MPI.PROC_NULL)
            for call in (win.Put, win.Get):
                try:
                    call(bytearray(8), 0)
                except NotImplementedError:
                    print("absent")
            freed = MPI.Win.fromhandle(win.handle)
            win.Free()
            other = make(8, 1, MPI.INFO_NULL, node)  # takes the place of the other one
            raises(MPI.ERR_WIN, freed.Fence)
            raises(MPI.ERR_WIN, freed.Get_name)
            raises(MPI.ERR_WIN, MPI.WIN_NULL.Sync)
            other.Free()
            """
        )
    )
    assert ended.lines == ["absent"] * 4, ended.errors


def test_memory_is_shared_within_a_node_only(programs: Programs) -> None:
    """The ranks say that they are on different hosts, as those of two nodes do."""
    ended = programs.run(
        program(
            """
            from pscompy_mpi import host

            session = host.state().world.session
            session._identity = session._identity._replace(host=f"host {node.rank}")
            world = MPI.COMM_WORLD
            raises(MPI.ERR_RMA_SHARED, MPI.Win.Allocate_shared, 8, 1, MPI.INFO_NULL, world)
            print("refused")
            """
        )
    )
    assert ended.lines == ["refused"] * 2, ended.errors


# ---- locks ----


def test_shared_locks_are_held_at_once(programs: Programs) -> None:
    ended = programs.run(
        program(
            """
            win = MPI.Win.Allocate_shared(8, 1, comm=node)
            for begin, end in [
                (lambda: win.Lock(0, MPI.LOCK_SHARED), lambda: win.Unlock(0)),
                (win.Lock_all, win.Unlock_all),
                (lambda: win.Lock(0, assertion=MPI.MODE_NOCHECK), lambda: win.Unlock(0)),
            ]:
                begin()
                node.Barrier()
                win.Sync()
                end()
            win.Free()
            print("shared")
            """
        )
    )
    assert ended.lines == ["shared"] * 2, ended.errors


def test_an_exclusive_lock_keeps_lock_all_out(programs: Programs) -> None:
    ended = programs.run(
        program(
            """
            win = MPI.Win.Allocate_shared(1, 1, comm=node)
            table = np.frombuffer(win.Shared_query(0)[0], "B")
            if node.rank == 0:
                win.Lock(1)
                node.Barrier()
                node.Recv(bytearray(1), 1)  # rank 1 is about to wait
                table[0] = 7
                win.Unlock(1)
            else:
                node.Barrier()
                node.Send(bytearray(1), 0)
                win.Lock_all()
                print(table[0])
                win.Unlock_all()
            win.Free()
            """
        )
    )
    assert ended.lines == ["7"], ended.errors


LOCKS = {
    "mpi4py": "win.Lock(1)",
    "gil-held": "assert library.MPI_Win_lock(MPI.LOCK_EXCLUSIVE, 1, 0, MPI._handleof(win)) == 0",
}


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
@pytest.mark.parametrize("shm", TRANSPORTS)
def test_a_wait_for_a_lock_lets_messages_arrive(programs: Programs, shm: str, lock: str) -> None:
    """Rank 0 unlocks when rank 1, which waits for the lock, has received a long message."""
    ended = programs.run(
        program(
            f"""
            library = ctypes.PyDLL(os.environ["MPI4PY_LIBMPI"])
            win = MPI.Win.Allocate_shared(1, 1, comm=node)
            long = np.full(1 << 22, 1 - node.rank, "B")
            if node.rank == 0:
                win.Lock(1)
                node.Barrier()
                node.Ssend(long, 1)
                win.Unlock(1)
            else:
                request = node.Irecv(long, 0)
                node.Barrier()
                {lock}
                win.Unlock(1)
                request.Wait()
                print(long.all())
            win.Free()
            """
        ),
        PSP_SHM=shm,
    )
    assert ended.lines == ["True"], ended.errors


def test_ctrl_c_ends_a_wait_for_a_lock(programs: Programs) -> None:
    """The rank does not have the lock then, and can wait for it again."""
    ended = programs.run(
        program(
            """
            win = MPI.Win.Allocate_shared(1, 1, comm=node)
            if node.rank == 0:
                win.Lock(0)
                node.Barrier()
                node.Recv(bytearray(1), 1)
                win.Unlock(0)
            else:
                node.Barrier()
                threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
                try:
                    try:
                        win.Lock(0)
                    except MPI.Exception:
                        threading.Event().wait(60)  # Python raises now what Lock could not raise
                except KeyboardInterrupt:
                    print("interrupted")
                node.Send(bytearray(1), 0)
                win.Lock(0)
                win.Unlock(0)
            node.Barrier()
            win.Free()
            """
        )
    )
    assert ended.lines == ["interrupted"], ended.errors


# ---- the end ----


def test_freeing_leaves_nothing(programs: Programs) -> None:
    """Neither the memory, nor a descriptor."""
    ended = programs.run(
        program(
            """
            def opened():
                links = pathlib.Path("/proc/self/fd").iterdir()
                return sorted(os.readlink(it) for it in links if it.is_symlink())

            def counted():
                files = [it for it in opened() if "pscompy shared" in it]
                return len(files), "pscompy shared" in pathlib.Path("/proc/self/maps").read_text()

            win = MPI.Win.Allocate_shared(4096, 1, comm=node)
            assert counted() == (2, True)
            node.Barrier()
            win.Free()
            assert counted() == (0, False)
            before = len(opened())
            for _ in range(50):
                MPI.Win.Allocate_shared(4096, 1, comm=node).Free()
            assert len(opened()) == before
            print("nothing")
            """
        )
    )
    assert ended.lines == ["nothing"] * 2, ended.errors


def mapped(memory: str) -> list[str]:
    """The processes that have mapped a file in memory: the number of its inode."""
    found = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = maps.read_text().splitlines()
        except OSError:  # has ended, or is another user's
            continue
        if any(MEMORY in line and line.split()[4] == memory for line in lines):
            found.append(maps.parent.name)
    return found


def test_a_killed_rank_leaves_nothing(programs: Programs) -> None:
    """The other one gets the lock, and the memory ends with the job."""
    ended = programs.run(
        program(
            """
            win = MPI.Win.Allocate_shared(1, 1, comm=node)
            table = np.frombuffer(win.Shared_query(1)[0], "B")
            if node.rank == 1:
                win.Lock(1)
                table[0] = 7
                node.Barrier()
                os.kill(os.getpid(), signal.SIGKILL)
            node.Barrier()
            win.Lock(1)
            win.Unlock(1)
            maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
            [memory] = [line.split()[4] for line in maps if "pscompy shared" in line]
            print(table[0], memory)
            raises(101, win.Fence)
            """
        ),
        "--keep-going",
    )
    assert len(ended.lines) == 1, ended.errors
    value, memory = ended.lines[0].split()
    assert value == "7"
    assert mapped(memory) == []
