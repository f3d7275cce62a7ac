"""Addresses of a session's objects, as code in C passes them to the C interface."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pscompy
from pscompy import capi
from tests.waiting import expect_soon


class Head(ctypes.Structure):
    """The first fields of psc_api_t."""

    _fields_ = (("abi", ctypes.c_uint32), ("size", ctypes.c_uint32))


def test_the_table_says_its_version():
    head = Head.from_address(capi.table())
    header = Path(pscompy.get_include(), "pscompy/core/api.h").read_text()
    assert f"#define PSC_API_ABI {head.abi}u\n" in header
    assert head.size > 30 * ctypes.sizeof(ctypes.c_void_p)


def test_a_connection_comes_up_without_requests():
    came = []
    with pscompy.Session() as there, pscompy.Session() as here:
        assert capi.worker(here) != capi.worker(there)
        socket = capi.listen(there, None, 0, came.append)
        connection = here.connect(socket.address)
        address = capi.connection(connection)
        assert connection.state is pscompy.ConnectionState.LAZY
        capi.begin_open(connection)
        expect_soon(lambda: connection.state is pscompy.ConnectionState.UP)
        expect_soon(lambda: came)
        assert capi.connection(connection) == address
        (other,) = came
        connection.send(b"as any other")
        assert other.recv() == b"as any other"


def test_disconnected_a_session_keeps_the_completions_of_c(compiler, tmp_path):
    source = Path(__file__).with_name("unfinished.c")
    library = ctypes.CDLL(
        str(compiler(tmp_path / "unfinished.so", [source], ["-fPIC"], link=["-shared"]))
    )
    library.take_completion.restype = ctypes.c_void_p
    table, owner = ctypes.c_void_p(capi.table()), 16
    soon = pscompy.Session(config={"SHUTDOWN_TIMEOUT": 0.2})  # nobody receives the message
    with pscompy.Session() as there, soon as here:
        connection = here.connect(there.listen().address)
        connection.open()
        worker = ctypes.c_void_p(capi.worker(here))
        address = ctypes.c_void_p(capi.connection(connection))
        assert library.send_unfinished(table, address, ctypes.c_void_p(owner)) > 0
        assert library.take_completion(table, worker) is None
        assert capi.disconnect(here)
        assert connection.state is pscompy.ConnectionState.CLOSED
        assert library.take_completion(table, worker) == owner
        assert library.take_completion(table, worker) is None
