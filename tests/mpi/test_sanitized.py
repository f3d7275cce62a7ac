"""The library under AddressSanitizer and UBSan: one program that uses each part of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiler import ADDRESS
from tests.mpi.programs import Programs

PROGRAM = """
    from mpi4py import MPI
    import numpy as np

    comm, peer = MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank

    def messages():
        matrix, got = np.arange(400.0).reshape(20, 20), np.zeros((20, 20))
        block = MPI.DOUBLE.Create_subarray((20, 20), (5, 6), (1, 2)).Commit()
        few = MPI.DOUBLE.Create_indexed([1, 2, 3], [30, 10, 2]).Commit()
        many = MPI.DOUBLE.Create_indexed([1, 2] * 40, [3 * i for i in range(80)]).Commit()
        for it in (block, few, many, MPI.DOUBLE.Create_contiguous(7).Commit()):
            requests = [comm.Irecv([got, 1, it], peer), comm.Isend([matrix, 1, it], peer)]
            while requests:
                requests.pop(MPI.Request.Waitany(requests))
            sending = comm.Isend([matrix, 1, it], peer)
            comm.Mprobe(peer).Recv([got, 1, it])
            sending.Wait()
            packed = bytearray(matrix.nbytes)
            it.Pack(matrix, packed, 0, comm)
            it.Unpack(packed, 0, got, comm)
            it.Free()

    def kept():
        MPI.Attach_buffer(bytearray(10_000))
        comm.bsend("buffered", peer)
        assert comm.recv(source=peer) == "buffered"
        MPI.Detach_buffer()
        number, got = np.full(3, comm.rank), np.zeros(3, int)
        both = [comm.Send_init(number, peer), comm.Recv_init(got, peer)]
        for _ in range(3):
            MPI.Prequest.Startall(both)
            MPI.Request.Waitall(both)
        both[1].Start()
        both[1].Cancel()
        both[1].Wait()
        for it in both:
            it.Free()

    def communicators():
        key = MPI.Comm.Create_keyval(copy_fn=lambda comm, key, value: value)
        comm.Set_attr(key, "value")
        made, request = comm.Idup()
        request.Wait()
        assert made.Get_attr(key) == "value"
        half = made.Split(comm.rank)
        cart = made.Create_cart([2], [True])
        assert cart.Shift(0, 1) == (peer, peer)
        for it in (half, cart, made):
            it.Free()
        MPI.Comm.Free_keyval(key)

    def collectives():
        own, all = np.full(4, comm.rank + 1.0), np.zeros(8)
        other = MPI.Op.Create(lambda a, b, type: None, commute=False)
        for op in (MPI.SUM, MPI.MAX, other):
            comm.Allreduce(own, all[:4].copy(), op)
            comm.Ireduce(own, all[4:], op).Wait()
            op.Reduce_local(own, all[:4])
        other.Free()
        comm.Allgatherv(own, [all, [4, 4], [4, 0], MPI.DOUBLE])
        column = MPI.DOUBLE.Create_vector(4, 1, 2).Create_resized(0, 8).Commit()
        comm.Allgather([own, 4, MPI.DOUBLE], [all, 1, column])
        start = comm.Allreduce_init(own, all[:4])
        for _ in range(2):
            start.Start()
            start.Wait()
        start.Free()
        column.Free()

    def errors():
        sending = comm.Isend(np.zeros(10), peer, 9)
        for call in (lambda: comm.Recv(np.zeros(1), peer, 9), lambda: comm.Send(b"", 7)):
            try:
                call()
            except MPI.Exception as error:
                assert str(error)
        sending.Wait()

    for part in (messages, kept, communicators, collectives, errors):
        part()
        comm.Barrier()
    print("done")
"""


@pytest.fixture(scope="module")
def sanitized(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from pscompy_mpi.build import build

    folder = tmp_path_factory.mktemp("sanitized")
    build(folder, [*ADDRESS, "-O1", "-Wno-error"])
    return folder


@pytest.mark.parametrize("shm", ["1", "0"], ids=["shm", "tcp"])
def test_no_error_is_found(sanitized: Path, tmp_path: Path, shm: str) -> None:
    command = ["gcc", "-print-file-name=libasan.so"]
    runtime = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("gcc has no libasan.so: install libasan")
    environ = {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0", "PSP_SHM": shm}
    ended = Programs(sanitized, tmp_path).run(PROGRAM, **environ)
    assert ended.lines == ["done", "done"], ended.errors
