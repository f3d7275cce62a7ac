"""How programs of mpi4py end: by MPI_Finalize or without it, after a fork, by a signal."""

from __future__ import annotations

import pytest

from tests.mpi.programs import Programs

ENDS = {
    "mpi4py finalizes": "",
    "by hand": "MPI.Finalize()",
    "never": "mpi4py.rc.finalize = False",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_program_ends(programs: Programs, end: str) -> None:
    ended = programs.run(
        f"""
        import mpi4py
        from mpi4py import MPI
        print(MPI.COMM_WORLD.allreduce(1))
        {end}
        """
    )
    assert ended.code == 0, ended.errors
    assert ended.lines == ["2", "2"]
    assert "Traceback" not in ended.errors


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_end_deletes_attributes(programs: Programs, end: str) -> None:
    """The attributes of MPI_COMM_SELF go while MPI still works."""
    ended = programs.run(
        f"""
        import mpi4py
        from mpi4py import MPI

        key = MPI.Comm.Create_keyval(delete_fn=lambda *_: print(MPI.COMM_WORLD.allreduce(1)))
        MPI.COMM_SELF.Set_attr(key, "value")
        {end}
        """
    )
    assert ended.code == 0, ended.errors
    assert ended.lines == ["2", "2"], ended.errors


@pytest.mark.parametrize("held", [False, True], ids=["no GIL", "GIL"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_thread_that_waits_does_not_outlive_mpi(
    programs: Programs, ranks: int, held: bool
) -> None:
    """The end of the process stops it. It is inside the core, with or without the GIL before."""
    ended = programs.run(
        f"""
        from mpi4py import MPI
        import ctypes, os, threading, time

        library = ctypes.PyDLL(os.environ["MPI4PY_LIBMPI"])

        def wait():
            if {held}:
                library.MPI_Probe(0, 9, MPI._handleof(MPI.COMM_WORLD), (ctypes.c_int * 5)())
            else:
                MPI.COMM_WORLD.recv(tag=9)
            print("returned", flush=True)

        for _ in range(3):
            threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.2)
        print(MPI.COMM_WORLD.allreduce(1), flush=True)
        """,
        ranks=ranks,
    )
    assert (ended.code, ended.errors) == (0, "")
    assert ended.lines == [str(ranks)] * ranks


def test_finalize_ends_the_waits_of_threads(programs: Programs) -> None:
    ended = programs.run(
        """
        from mpi4py import MPI
        import threading, time

        def wait():
            try:
                MPI.COMM_WORLD.recv(tag=9)
            except MPI.Exception:
                print("ended")

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.2)
        MPI.Finalize()
        thread.join()
        """
    )
    assert (ended.code, ended.lines) == (0, ["ended"] * 2), ended.errors


def test_a_child_of_a_rank_ends_alone(programs: Programs) -> None:
    """A child made by fork has no MPI; its end is not that of the rank."""
    ended = programs.run(
        """
        from mpi4py import MPI
        import os, sys

        comm = MPI.COMM_WORLD
        comm.Barrier()
        child = os.fork()
        if child == 0:
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), comm.allreduce(1))
        """
    )
    assert ended.code == 0, ended.errors
    assert ended.lines == ["3 2", "3 2"]


def test_an_allreduce_names_the_rank_that_died(programs: Programs) -> None:
    ended = programs.run(
        """
        from mpi4py import MPI
        import numpy as np
        import os, signal

        comm = MPI.COMM_WORLD
        comm.Barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            comm.Allreduce(np.zeros(1), np.zeros(1))
        except MPI.Exception as error:
            print(error.Get_error_class(), "rank 1" in str(error))
        """,
        "--keep-going",
    )
    assert ended.lines == ["101 True"], ended.errors


@pytest.mark.parametrize("source", ["MPI.PROC_NULL", "MPI.COMM_WORLD.rank"])
def test_an_exchange_names_the_lost_rank_that_it_sends_to(programs: Programs, source: str) -> None:
    ended = programs.run(
        f"""
        from mpi4py import MPI
        import numpy as np
        import os, signal, time

        comm, got = MPI.COMM_WORLD, np.zeros(1)
        comm.Barrier()
        if comm.rank == 1:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        own = comm.Isend(np.ones(1), 0)
        try:
            comm.Sendrecv(np.zeros(2_000_000), 1, 0, got, {source})
        except MPI.Exception as error:
            print(error.Get_error_class(), "rank 1" in str(error))
        if {source} == MPI.PROC_NULL:
            comm.Recv(got, 0)
        """,
        "--keep-going",
    )
    assert ended.lines == ["101 True"], ended.errors


def test_sigint_ends_a_job_that_waits(programs: Programs) -> None:
    """As Ctrl-C: the launcher and all ranks get the signal."""
    ended = programs.run(
        """
        from mpi4py import MPI
        import os, signal, threading

        comm = MPI.COMM_WORLD
        comm.Barrier()
        if comm.rank == 1:
            launcher = os.getppid()
            threading.Timer(0.5, os.kill, (launcher, signal.SIGINT)).start()
        comm.recv()
        """
    )
    assert ended.code != 0


def test_ctrl_c_amid_calls_is_raised(programs: Programs) -> None:
    """Functions that live in Python do not swallow it."""
    ended = programs.run(
        """
        from mpi4py import MPI
        import os, signal, threading, time

        def construct():
            while True:
                MPI.DOUBLE.Create_contiguous(3).Free()

        def is_raised():
            threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                try:
                    construct()
                except MPI.Exception:
                    for _ in range(100):
                        time.sleep(0.1)
            except KeyboardInterrupt:
                return True
            return False

        print(all(is_raised() for _ in range(10)))
        """,
        ranks=1,
    )
    assert ended.lines == ["True"], ended.errors


@pytest.mark.parametrize(
    ("call", "number", "action", "printed"),
    [
        ("comm.recv()", "SIGALRM", "raise TimeoutError(5)", "TimeoutError(5)"),
        ("comm.recv()", "SIGINT", "raise TimeoutError(5)", "TimeoutError(5)"),
        ("comm.recv()", "SIGTERM", "sys.exit(5)", "SystemExit(5)"),
        ("construct()", "SIGTERM", "sys.exit(5)", "SystemExit(5)"),
    ],
)
def test_what_a_handler_raises_comes_next(
    programs: Programs, call: str, number: str, action: str, printed: str
) -> None:
    """The exception itself, and the handler runs once."""
    ended = programs.run(
        f"""
        from mpi4py import MPI
        import os, signal, sys, threading, time

        comm, calls = MPI.COMM_WORLD, []

        def handler(*args):
            calls.append(args)
            {action}

        def construct():
            while True:
                MPI.DOUBLE.Create_contiguous(3).Free()

        signal.signal(signal.{number}, handler)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.{number})).start()
        try:
            try:
                {call}
            except MPI.Exception:
                for _ in range(100):
                    time.sleep(0.1)
        except BaseException as error:
            print(repr(error), len(calls))
        """,
        ranks=1,
    )
    assert ended.lines == [f"{printed} 1"], ended.errors
