"""A typed program for mypy, which shall find the mistakes of `wrong` and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import pscompy
from pscompy import Communicator, Connection, PersistentRequest, Request, Session, Status


def messages(comm: Communicator, into: bytearray) -> None:
    assert_type(comm.recv(), bytearray)
    assert_type(comm.recv(into, source=1), Status)
    assert_type(comm.irecv(), Request[bytearray])
    assert_type(comm.irecv(into), Request[Status])
    assert_type(comm.isend(b"", dest=1), Request[None])
    assert_type(comm.irecv(source=1).wait(timeout=3), bytearray)
    assert_type(comm.irecv(into).result(), Status)
    assert_type(comm.sendrecv(b"", 1), bytearray)
    assert_type(comm.sendrecv(b"", 1, into), Status)
    assert_type(comm.send_init(b"", 1), PersistentRequest[None])
    assert_type(comm.recv_init(into).wait(), Status)
    assert_type(comm.recv_status(), tuple[bytearray, Status])
    assert_type(comm.mprobe().recv(), bytearray)
    assert_type(comm.mprobe().recv(into), Status)
    assert_type(comm.irecv().status, Status | None)
    assert_type(comm.ibarrier(), Request[None])


def objects(comm: Communicator) -> None:
    assert_type(comm.irecv_obj(), Request[Any])
    assert_type(comm.isend_obj({}, dest=0), Request[None])


def several(comm: Communicator) -> None:
    assert_type(pscompy.wait_all([comm.irecv(), comm.irecv()]), list[bytearray])
    assert_type(pscompy.wait_any([comm.irecv(np.zeros(3))]), tuple[int, Status])


async def awaited(comm: Communicator, session: Session) -> None:
    assert_type(await comm.irecv(), bytearray)
    with session.listen() as socket:
        assert_type(await socket.iaccept(), Connection)


def communicators(world: pscompy.World) -> None:
    assert_type(world.session, Session)
    assert_type(world.dup(), Communicator)
    assert_type(world.split_by_module().dup(), Communicator)
    assert_type(world.split_by_node(), Communicator)
    assert_type(world.split(0, key=1), Communicator | None)
    assert_type(world.shared((2, 3), np.int32), NDArray[Any])
    assert_type(world.create([0], timeout=1.0), Communicator)
    assert_type(world.connection(0), Connection)
    assert_type(world[0].recv(), bytearray)
    assert_type([it.irecv() for it in world], list[Request[bytearray]])


def keep(request: Request[bytearray]) -> Request[object]:
    request.add_done_callback(lambda it: print(it.result().hex()))
    return request


def wrong(comm: Communicator) -> None:
    print(comm.recv().source)
    print(comm.irecv(bytearray(1)).wait().decode())
    comm.listen()
