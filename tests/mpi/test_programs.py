"""Programs of mpi4py, unchanged, on the library: over shared memory and over tcp."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.mpi.programs import Programs

TRANSPORTS = [pytest.param("1", id="shm"), pytest.param("0", id="tcp")]

MESSAGES = """
    from mpi4py import MPI
    import numpy as np

    comm = MPI.COMM_WORLD
    peer = 1 - comm.rank
    for n in (1, 1000, 100_000):
        sent = np.arange(n, dtype="d") + comm.rank
        got = np.empty_like(sent)
        status = MPI.Status()
        comm.Sendrecv(sent, peer, 7, got, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        assert (got == sent - comm.rank + peer).all()
        assert (status.source, status.tag, status.Get_count(MPI.DOUBLE)) == (peer, 7, n)
    assert comm.sendrecv({"rank": comm.rank}, peer) == {"rank": peer}
    print("rank", comm.rank, "of", comm.size)
"""


@pytest.mark.parametrize("shm", TRANSPORTS)
def test_messages(programs: Programs, shm: str) -> None:
    ended = programs.run(MESSAGES, PSP_SHM=shm)
    assert ended.code == 0, ended.errors
    assert ended.lines == ["rank 0 of 2", "rank 1 of 2"]


@pytest.mark.parametrize("shm", TRANSPORTS)
def test_calls_that_hold_the_gil_let_ranks_connect(programs: Programs, shm: str) -> None:
    """Both ranks wait for each other in C with the GIL held, before they have connected."""
    ended = programs.run(
        """
        import ctypes, os
        from mpi4py import MPI

        library = ctypes.PyDLL(os.environ["MPI4PY_LIBMPI"])
        comm, peer = MPI._handleof(MPI.COMM_WORLD), 1 - MPI.COMM_WORLD.rank
        number, status = (ctypes.c_int * 1)(peer), (ctypes.c_int * 5)()
        given = number, 1, MPI._handleof(MPI.INT), peer, 3, comm
        calls = [lambda: library.MPI_Ssend(*given), lambda: library.MPI_Recv(*given, status)]
        for call in calls if peer else reversed(calls):
            assert call() == 0
        print(number[0])
        """,
        PSP_SHM=shm,
    )
    assert ended.code == 0, ended.errors
    assert len(ended.lines) == 2


@pytest.mark.parametrize("call", ["comm.recv(source=1)", "comm.Barrier()"])
def test_a_lost_peer_is_named(programs: Programs, call: str) -> None:
    ended = programs.run(
        f"""
        from mpi4py import MPI
        import os, signal

        comm = MPI.COMM_WORLD
        comm.Barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            {call}
        except MPI.Exception as error:
            print(error.Get_error_class(), error)
        """,
        "--keep-going",
    )
    assert len(ended.lines) == 1, ended.errors
    assert ended.lines[0].startswith("101 ")
    assert "1" in ended.lines[0].removeprefix("101 ")


def test_a_deadlock_is_reported(programs: Programs) -> None:
    """Both ranks wait in C for each other, until rank 0 has read the report."""
    ended = programs.run(
        """
        from mpi4py import MPI
        import os, threading

        comm, peer = MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank
        log, written = os.pipe()

        def end():
            print(next(line.strip() for line in open(log) if "deadlock" in line))
            comm.send(None, peer, 3)

        if comm.rank == 0:
            os.dup2(written, 2)
            threading.Thread(target=end).start()
        comm.recv(source=peer, tag=3)
        if comm.rank == 1:
            comm.send(None, peer, 3)
        """,
        PSP_DEADLOCK_WARNINGS="0.4",
    )
    assert ended.code == 0, ended.errors
    assert "deadlock: ranks 0, 1 wait for each other" in ended.output
    assert ended.output.count("tag 3 (program.py:") == 2


def test_an_uncaught_exception_ends_the_job(programs: Programs) -> None:
    """The rank that raises does not wait for the other one, which waits for it."""
    ended = programs.run(
        """
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 1:
            raise ValueError("on purpose")
        MPI.COMM_WORLD.recv(source=1)
        """
    )
    assert ended.code == 1
    assert "on purpose" in ended.errors


def test_nothing_works_after_finalize(programs: Programs) -> None:
    ended = programs.run(
        """
        from mpi4py import MPI

        comm = MPI.COMM_WORLD.Dup()
        MPI.Finalize()
        assert MPI.Is_finalized()
        for call in (comm.Barrier, comm.Get_rank, MPI.COMM_WORLD.Dup, MPI.Info.Create):
            try:
                call()
            except MPI.Exception:
                print("refused")
        """,
        ranks=1,
    )
    assert ended.code == 0, ended.errors
    assert ended.lines == ["refused"] * 4


def test_freed_handles_are_refused(programs: Programs) -> None:
    ended = programs.run(
        """
        from mpi4py import MPI

        comm = MPI.COMM_WORLD.Dup()
        freed = MPI.Comm.fromhandle(MPI._handleof(comm))
        comm.Free()
        other = MPI.COMM_WORLD.Dup()  # takes the place of the other one
        try:
            freed.Barrier()
        except MPI.Exception as error:
            print(error.Get_error_class() == MPI.ERR_COMM)

        info, group = MPI.Info.Create(), MPI.COMM_WORLD.Get_group()
        kept = MPI.Info.fromhandle(MPI._handleof(info)), MPI.Group.fromhandle(MPI._handleof(group))
        info.Free(), group.Free()
        others = MPI.Info.Create(), MPI.COMM_WORLD.Get_group()
        for it, number in zip(kept, (MPI.ERR_INFO, MPI.ERR_GROUP)):
            try:
                it.Dup() if it is kept[0] else it.Get_size()
            except MPI.Exception as error:
                print(error.Get_error_class() == number)
        """,
        ranks=1,
    )
    assert ended.lines == ["True"] * 3, ended.errors


def test_long_names_are_cut(programs: Programs) -> None:
    """Behind the last character that fits into 127 bytes."""
    ended = programs.run(
        """
        from mpi4py import MPI

        window = MPI.Win.Allocate_shared(8)
        for it in (MPI.COMM_WORLD, MPI.INT.Dup(), window):
            for name in ("x" * 127, "x" * 5000, "x" * 126 + "é", "x" * 125 + "é", "é" * 5000):
                it.Set_name(name)
                got = it.Get_name()
                assert name.startswith(got) and len(got.encode()) in (126, 127), got
                assert len((got + name[len(got):][:1]).encode()) > 127 or got == name, got
        window.Free()
        """,
        ranks=1,
    )
    assert ended.code == 0, ended.errors


def test_structures_are_padded_as_in_c(programs: Programs) -> None:
    """The end of a structure goes by the alignment of its parts; complex numbers have two parts."""
    ended = programs.run(
        """
        import numpy as np
        from mpi4py import MPI

        for code in "hilqfdgFDG":
            whole = np.dtype([("number", code), ("letter", "S1")], align=True)
            types = MPI._typedict[code], MPI.CHAR
            made = MPI.Datatype.Create_struct([1, 1], [0, np.dtype(code).itemsize], types)
            assert made.extent == whole.itemsize, (code, made.extent, whole.itemsize)
        sized = MPI.Datatype.Create_f90_complex(12, MPI.UNDEFINED)
        assert MPI.Datatype.Create_struct([1, 1], [0, 16], [sized, MPI.CHAR]).extent == 24
        """,
        ranks=1,
    )
    assert ended.code == 0, ended.errors


def test_freed_communicators_give_error_handlers_back(programs: Programs) -> None:
    ended = programs.run(
        """
        from mpi4py import MPI

        places = set()
        for _ in range(10):
            comm = MPI.COMM_WORLD.Dup()
            handler = MPI.Comm.Create_errhandler(lambda comm, code: None)
            places.add(MPI._handleof(handler) & 0xfffff)  # the index in the table
            comm.Set_errhandler(handler)
            handler.Free()
            comm.Free()
        print(len(places))
        """,
        ranks=1,
    )
    assert ended.lines == ["1"], ended.errors


def test_freed_communicators_leave_no_buffered_message(programs: Programs) -> None:
    """Their copies, of 4 MB each, are freed once the messages were sent."""
    ended = programs.run(
        """
        import resource
        import numpy as np
        from mpi4py import MPI

        data, peer = np.ones(4_000_000, "b"), 1 - MPI.COMM_WORLD.rank
        for i in range(70):
            if i == 10:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            comm = MPI.COMM_WORLD.Dup()
            comm.Attach_buffer(MPI.BUFFER_AUTOMATIC)
            comm.Bsend(data, peer)
            matched = comm.Mprobe(peer)
            comm.Free()
            got = np.zeros_like(data)
            matched.Recv(got)
            assert (got == data).all()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert after - before < 80_000, (before, after)
        """
    )
    assert ended.code == 0, ended.errors


def test_freed_requests_give_their_places_back(programs: Programs) -> None:
    """A handle has the number of its place in the low 20 bits."""
    ended = programs.run(
        """
        from mpi4py import MPI
        import numpy as np

        comm, rounds, n = MPI.COMM_WORLD, 5, 100
        column = MPI.DOUBLE.Create_vector(10_000, 1, 2).Commit()
        sent, got = np.ones(20_000), np.empty(10_000)
        for _ in range(rounds):
            comm.Barrier()  # so that the sends wait for their receives
            if comm.rank == 0:
                requests = [comm.Isend([sent, 1, column], 1) for _ in range(n)]
                highest = max(MPI._handleof(request) & 0xFFFFF for request in requests)
                for request in requests:
                    request.Free()
            comm.Barrier()
            for _ in range(n * comm.rank):
                comm.Recv(got, 0)
            comm.Barrier()
        if comm.rank == 0:
            print(highest < 2 * n)
        """
    )
    assert ended.lines == ["True"], ended.errors


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("comm.Barrier()", "comm.Barrier()"),
        ("comm.recv(source=1)", "comm.send(None, dest=0)"),
        ("comm.Dup()", "comm.Dup()"),
        ("test(comm.irecv(source=1))", "comm.send(None, dest=0)"),
    ],
)
def test_any_call_goes_on_with_an_operation_of_the_program(
    programs: Programs, first: str, second: str
) -> None:
    """Rank 1 comes to its second call only after both ranks have called the function."""
    ended = programs.run(
        f"""
        from mpi4py import MPI
        import numpy as np

        def add(given, changed, kind):
            np.frombuffer(changed, "i")[:] += np.frombuffer(given, "i")

        def test(request):
            while not request.Test():
                pass

        comm, total = MPI.COMM_WORLD, np.zeros(4, "i")
        request = comm.Iallreduce(np.full(4, comm.rank + 1, "i"), total, MPI.Op.Create(add))
        if comm.rank == 0:
            {first}
            request.Wait()
        else:
            request.Wait()
            {second}
        print(total[0])
        """
    )
    assert ended.lines == ["3", "3"], ended.errors


def test_ctrl_c_ends_a_receive(programs: Programs) -> None:
    ended = programs.run(
        """
        from mpi4py import MPI
        import os, signal, threading, time

        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            try:
                MPI.COMM_WORLD.recv()
            except MPI.Exception:
                for _ in range(100):  # Python raises now what the receive could not raise
                    time.sleep(0.1)
        except KeyboardInterrupt:
            print("interrupted")
        """,
        ranks=1,
    )
    assert ended.lines == ["interrupted"], ended.errors


def test_threads_share_a_communicator(programs: Programs) -> None:
    ended = programs.run(
        """
        from mpi4py import MPI
        import numpy as np
        import threading

        comm, peer, wrong = MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank, []

        def exchange(tag):
            for i in range(500):
                sent = np.full(8, 10 * i + tag)
                got = np.empty_like(sent)
                requests = [comm.Irecv(got, peer, tag), comm.Isend(sent, peer, tag)]
                while requests:
                    requests.pop(MPI.Request.Waitany(requests))
                if (got != sent).any():
                    wrong.append((tag, i))

        threads = [threading.Thread(target=exchange, args=(tag,)) for tag in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(wrong)
        """
    )
    assert ended.lines == ["[]", "[]"], ended.errors


def test_a_matrix_column_is_sent_as_a_vector(programs: Programs) -> None:
    ended = programs.run(
        """
        from mpi4py import MPI
        import numpy as np

        comm = MPI.COMM_WORLD
        matrix = np.arange(12, dtype="d").reshape(3, 4)
        column = MPI.DOUBLE.Create_vector(3, 1, 4).Commit()
        if comm.rank == 0:
            comm.Send([matrix, 1, column], 1)
        else:
            got = np.zeros(3)
            comm.Recv(got, 0)
            print(got.tolist())
        """
    )
    assert ended.lines == ["[0.0, 4.0, 8.0]"], ended.errors


@pytest.mark.parametrize("shm", TRANSPORTS)
def test_a_rank_goes_on_while_it_duplicates(programs: Programs, shm: str) -> None:
    """One rank calls Idup only after the other one, which has, tells it to."""
    ended = programs.run(
        """
        from mpi4py import MPI

        comm, peer = MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank
        if comm.rank == 0:
            promised = [comm.Idup(), comm.Idup()]
            assert not promised[0][1].Test()
            comm.send("now", 1)
            group = comm.Create_group(comm.group)
        else:
            assert comm.recv(source=0) == "now"
            group = comm.Create_group(comm.group)
            promised = [comm.Idup(), comm.Idup()]
        dup = comm.Dup()
        MPI.Request.Waitall([request for _, request in promised])
        made = [group, dup, *(it for it, _ in promised)]
        requests = [it.irecv(source=peer) for it in made]
        for number, it in reversed(list(enumerate(made))):
            it.send(number, peer)
        print([request.wait() for request in requests], sum(it.allreduce(1) for it in made))
        """,
        PSP_SHM=shm,
    )
    assert ended.lines == ["[0, 1, 2, 3] 8"] * 2, ended.errors


def test_arrays_are_reduced_without_a_communicator(programs: Programs) -> None:
    ended = programs.run(
        """
        from mpi4py import MPI
        import numpy as np

        def replace(given, replaced, _):
            replaced[:] = given

        for op in (MPI.SUM, MPI.MAXLOC, MPI.Op.Create(replace)):
            dtype = [("value", "d"), ("index", "i4")] if op == MPI.MAXLOC else "d"
            type = MPI.DOUBLE_INT if op == MPI.MAXLOC else MPI.DOUBLE
            a, b = np.ones(1, np.dtype(dtype, align=True)), np.zeros(1, np.dtype(dtype, align=True))
            op.Reduce_local([a, 1, type], [b, 1, type])
            print(b[0])
        try:
            MPI.BAND.Reduce_local(np.ones(1), np.zeros(1))
        except MPI.Exception as error:
            print(error.Get_error_class() == MPI.ERR_OP)
        """,
        ranks=1,
    )
    assert ended.lines == sorted(["1.0", "(1.0, 1)", "1.0", "True"]), ended.errors


@pytest.mark.parametrize("shm", TRANSPORTS)
@pytest.mark.parametrize(("runs", "length"), [(5, 3), (64, 700), (65, 3)])
def test_runs_at_unequal_distances_are_sent(
    programs: Programs, shm: str, runs: int, length: int
) -> None:
    """As pieces up to 64 of them, else packed; also again, and into a matched message."""
    ended = programs.run(
        f"""
        from mpi4py import MPI
        import numpy as np

        comm, peer = MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank
        rng = np.random.default_rng(5)
        starts = rng.permutation(np.cumsum(rng.integers({length + 1}, {2 * length + 2}, {runs})))
        runs = MPI.DOUBLE.Create_indexed_block({length}, starts.tolist()).Commit()
        there = (starts[:, None] + np.arange({length})).ravel()
        sent = np.arange(there.max() + 1.0) + comm.rank
        expected, got = np.zeros_like(sent), np.zeros_like(sent)
        expected[there] = there + peer
        both = [comm.Send_init([sent, 1, runs], peer), comm.Recv_init([got, 1, runs], peer)]
        for _ in range(2):
            got[:] = 0
            MPI.Prequest.Startall(both)
            MPI.Request.Waitall(both)
            assert (got == expected).all()
        got[:] = 0
        sending = comm.Isend([sent, 1, runs], peer)
        comm.Mprobe(peer).Recv([got, 1, runs])
        sending.Wait()
        print((got == expected).all())
        """,
        PSP_SHM=shm,
    )
    assert ended.lines == ["True", "True"], ended.errors


def test_the_library_names_no_symbol_of_python(programs: Programs) -> None:
    """Programs that are not Python can be linked to the library."""
    if shutil.which("nm") is None:
        pytest.skip("no nm: install binutils")
    command = ["nm", "-D", "--undefined-only", str(programs.library)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line for line in text.splitlines() if " Py" in line or " _Py" in line] == []


@pytest.mark.parametrize("code", [-1, -255, -(2**29)])
def test_no_code_is_negative(programs: Programs, code: int) -> None:
    ended = programs.run(
        f"""
        from mpi4py import MPI

        for function in MPI.Get_error_class, MPI.Get_error_string:
            try:
                print(function({code}))
            except MPI.Exception as error:
                print(error.Get_error_class() == MPI.ERR_ARG)
        """,
        ranks=1,
    )
    assert ended.lines == ["True", "True"], ended.errors
