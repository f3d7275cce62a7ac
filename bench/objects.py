"""Objects as messages: ways of calling pscompy, and libraries of their own.

A size of up to 8 bytes stands for a small dictionary, every other one for an array of doubles. A
window of more than one stands for a list of that many arrays.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from bench.rows import Figures
from pscompy.cli.libraries import Library, pipe
from pscompy.cli.measure import LATENCY, Calls, Job
from pscompy.cli.sizes import with_unit

if TYPE_CHECKING:
    from bench.libraries import Own
    from pscompy import Communicator, Connection

SMALL = {"step": 7, "time": 2.5, "name": "text", "parts": [1, 2, 3]}


def made(job: Job, array: Callable[[int], Any] = np.ones) -> Any:
    if job.size <= 8:
        return SMALL
    arrays = [array(job.size // 8) for _ in range(job.window)]
    return arrays if job.window > 1 else arrays[0]


def calls(send: Callable[[], Any], recv: Callable[[], Any]) -> Calls:
    """Calls for tests of latency, which do not use the buffers."""
    return Calls(None, None, send, recv, send, recv, lambda requests: None, send, recv)


# ---- pscompy ------------------------------------------------------------------------------------


def plain(comm: Communicator, peer: Connection, job: Job) -> Calls:
    return calls(partial(peer.send_obj, made(job)), peer.recv_obj)


def apart(comm: Communicator, peer: Connection, job: Job) -> Calls:
    """Each long buffer is a message of its own, as if the peer could not take offers."""
    from pscompy.parcel.objects import Objects

    mock.patch.object(Objects, "_offer", return_value=b"").start()
    return plain(comm, peer, job)


def in_band(comm: Communicator, peer: Connection, job: Job) -> Calls:
    """The whole object in one pickle, as the base of comparison for the other ways."""
    obj = made(job)
    return calls(
        lambda: peer.send(pickle.dumps(obj, 5), 0),
        lambda: pickle.loads(peer.recv(tag=0)),
    )


def registered(comm: Communicator, peer: Connection, job: Job) -> Calls:
    """Arrays in memory of the pool, which the transports have registered."""
    return calls(partial(peer.send_obj, made(job, comm.empty)), peer.recv_obj)


def lent(comm: Communicator, peer: Connection, job: Job) -> Calls:
    """Each array is a new block of the pool, which is lent and not waited for."""
    return calls(lambda: peer.isend_obj(made(job, comm.empty), lend=True), peer.recv_obj)


WAYS: dict[str, Callable[[Communicator, Connection, Job], Calls]] = {
    "objects": plain,
    "in-band": in_band,
    "apart": apart,
    "registered": registered,
    "objects-lent": lent,
}


# ---- threads, each with a communicator of its own -----------------------------------------------


def _exchange(comm: Any, calls: Calls, count: int) -> None:
    order = (calls.send, calls.recv) if comm.rank == 0 else (calls.recv, calls.send)
    for _ in range(count):
        for call in order:
            call()


def exchanged(
    comms: list[Communicator], make: Callable[..., Calls], size: int, count: int
) -> float:
    """The seconds that all threads took together, each with a communicator of its own."""
    jobs = [
        (comm, make(comm, comm[1 - comm.rank], Job(LATENCY, size, count, 1)), count)
        for comm in comms
    ]
    threads = [threading.Thread(target=_exchange, args=job) for job in jobs]
    comms[0].barrier()
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def by_threads(own: Own, seconds: float, way: str, number: str, sizes: str) -> Figures | None:
    """MB/s of objects there and back."""
    figures = {}
    world = own.world
    comms = [world, *(world.dup() for _ in range(int(number) - 1))]
    for size in map(int, sizes.split(",")):
        once = exchanged(comms, WAYS[way], size, 3) / 3
        world.send_obj(once, own.peer)
        count = max(3, int(seconds / max(once, world.recv_obj())))
        taken = exchanged(comms, WAYS[way], size, count)
        figures[there_and_back(size)] = 2 * count * len(comms) * size / taken / 1e6
    return figures if own.rank == 0 else None


def there_and_back(size: int) -> str:
    return f"arrays of {with_unit(size)}, there and back"


# ---- others -------------------------------------------------------------------------------------


@contextmanager
def mpi4py(kind: str, folder: Path, role: int) -> Iterator[Library]:
    """The lower-case methods of mpi4py, of a plain communicator or of one of pkl5."""
    from mpi4py import MPI
    from mpi4py.util import pkl5

    world = MPI.COMM_WORLD if kind == "pickle" else pkl5.Intracomm(MPI.COMM_WORLD)
    peer = 1 - MPI.COMM_WORLD.rank

    def make(job: Job) -> Calls:
        return calls(partial(world.send, made(job), peer), partial(world.recv, source=peer))

    yield Library(MPI.COMM_WORLD.rank, make)


@contextmanager
def multiprocessing(folder: Path, role: int) -> Iterator[Library]:
    """The connections of multiprocessing."""
    with pipe(folder, role) as both:
        yield Library(role, lambda job: calls(partial(both.send, made(job)), both.recv))


@contextmanager
def zmq(folder: Path, role: int) -> Iterator[Library]:
    """pyzmq with pickle 5 in several parts without copies, as its documentation recommends."""
    import zmq as library

    def send(obj: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(obj, 5, buffer_callback=buffers.append)
        sock.send_multipart([data, *buffers], copy=False)

    def recv() -> Any:
        data, *buffers = sock.recv_multipart(copy=False)
        return pickle.loads(data.buffer, buffers=[frame.buffer for frame in buffers])

    with library.Context() as context, context.socket(library.PAIR) as sock:
        address = f"ipc://{folder / 'zmq'}"
        if role == 0:
            sock.bind(address)
        else:
            sock.connect(address)
        yield Library(role, lambda job: calls(partial(send, made(job)), recv))


_UCXX_BUFFERS = 10  # most buffers that the pickle of an object may leave out


@contextmanager
def ucxx(folder: Path, role: int) -> Iterator[Library]:
    """ucxx's own requests, polled. Lengths are sent before the parts, so that the receiver can
    allocate memory."""
    from ucxx._lib import libucxx as library
    from ucxx._lib.arr import Array

    worker = library.UCXWorker(library.UCXContext(feature_flags=(library.Feature.TAG,)))
    (folder / f"own-{role}").write_bytes(bytes(worker.address))
    (folder / f"own-{role}").rename(folder / f"address-{role}")
    theirs = library.UCXAddress.create_from_buffer(_read_when_there(folder / f"address-{1 - role}"))
    end = library.UCXEndpoint.create_from_worker_address(worker, theirs, False)

    def wait(requests: list[Any]) -> None:
        for request in requests:
            while not request.completed:
                worker.progress()
            request.check_error()

    def send(obj: Any) -> None:
        left: list[pickle.PickleBuffer] = []
        data = pickle.dumps(obj, 5, buffer_callback=left.append)
        parts = [np.asarray(it) for it in (memoryview(data), *(it.raw() for it in left))]
        lengths = np.zeros(1 + _UCXX_BUFFERS, np.uint64)
        lengths[: len(parts)] = [part.nbytes for part in parts]
        wait([end.tag_send(Array(it), library.UCXXTag(role)) for it in (lengths, *parts)])

    def receive(nbytes: int) -> tuple[Any, Any]:
        array = np.empty(nbytes, np.uint8)
        return array, end.tag_recv(Array(array), library.UCXXTag(1 - role))

    def recv() -> Any:
        told, request = receive(8 * (1 + _UCXX_BUFFERS))
        wait([request])
        parts = [receive(int(nbytes)) for nbytes in told.view(np.uint64) if nbytes]
        wait([request for _, request in parts])
        (data, *buffers) = (array for array, _ in parts)
        return pickle.loads(data, buffers=buffers)

    yield Library(role, lambda job: calls(partial(send, made(job)), recv))


def _read_when_there(path: Path) -> bytes:
    while not path.exists():
        time.sleep(0.01)
    return path.read_bytes()
