"""Messages that Ctrl-C interrupts: what becomes of them, and of their memory."""

from __future__ import annotations

import pytest

from tests.mpi.programs import Programs

# `interrupted` makes a call of MPI that Ctrl-C ends, after so many seconds.
INTERRUPTED = """
    from mpi4py import MPI
    import numpy as np
    import os, signal, threading, time

    comm, peer = MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank

    def interrupted(call, *given, seconds=0.5):
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            try:
                call(*given)
            except MPI.Exception:
                for _ in range(100):  # Python raises now what the call could not raise
                    time.sleep(0.1)
        except KeyboardInterrupt:
            return True
        return False
"""


def test_a_receive_that_ctrl_c_has_ended_takes_no_message(programs: Programs) -> None:
    ended = programs.run(
        INTERRUPTED
        + """
    if comm.rank == 0:
        print(interrupted(comm.recv, None, peer))
        comm.send("ready", peer)
        print(comm.recv(source=peer))
    else:
        comm.recv(source=peer)
        comm.send("first", peer)
        comm.send("second", peer)
        """
    )
    assert ended.lines == ["True", "first"], ended.errors


RECEIVES = {
    "Recv": "comm.Recv([got, 1, column], peer)",
    "Mrecv": "comm.Mprobe(peer).Recv([got, 1, column])",
    "Sendrecv": "comm.Sendrecv(one, peer, 0, [got, 1, column], peer)",
    "Sendrecv_replace": "comm.Sendrecv_replace([got, 1, column], peer, 0, peer)",
}


@pytest.mark.parametrize("call", RECEIVES.values(), ids=RECEIVES)
def test_nothing_is_written_after_ctrl_c(programs: Programs, call: str) -> None:
    """The peer sends while Ctrl-C arrives, and polls only later."""
    ended = programs.run(
        INTERRUPTED
        + f"""
    n, one = 2_000_000, np.zeros(1)
    column = MPI.DOUBLE.Create_vector(n, 1, 2).Commit()
    got = np.zeros((n, 2))
    if comm.rank == 0:
        comm.recv(source=peer)
        print(interrupted(lambda: {call}), got[:, 0].sum() == n)
    else:
        comm.send("ready", peer)
        request = comm.Isend(np.ones(n), peer)
        time.sleep(1.5)
        request.Wait()
        if "replace" in {call!r}:
            comm.Recv(np.empty(n), peer)
        """,
        PSP_SHM="0",
    )
    assert ended.code == 0, ended.errors
    assert ended.lines == ["True True"], ended.errors
