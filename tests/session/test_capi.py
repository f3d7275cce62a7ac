"""Addresses of a session's objects, as code in C passes them to the C interface."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import pytest

import pscompy
from pscompy import capi
from tests.waiting import expect_soon

CLOSED = -8  # PSC_ERR_CLOSED


def address_of_table() -> ctypes.c_void_p:
    return ctypes.c_void_p(capi.table())


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


@pytest.fixture
def library(compiler, tmp_path):
    source = Path(__file__).with_name("unfinished.c")
    built = compiler(tmp_path / "unfinished.so", [source], ["-fPIC"], link=["-shared"])
    library = ctypes.CDLL(str(built))
    library.take_completion.restype = ctypes.c_void_p
    return library


def test_a_dump_marks_what_c_waits_for(library):
    with pscompy.Session() as there, pscompy.Session() as here:
        listening = there.listen()
        connection = here.connect(listening.address)
        connection.open()
        accepted = listening.accept(60)
        unmarked = connection.irecv(tag=8)
        arguments = map(ctypes.c_void_p, (capi.table(), capi.worker(here)))
        waiting = threading.Thread(target=library.receive, args=(*arguments, 7))
        waiting.start()
        expect_soon(lambda: "waited for" in here.dump())
        (line,) = (it for it in here.dump().splitlines() if "waited for" in it)
        assert "receive from any source, tag 7" in line
        accepted.send(b"at last", tag=7)
        waiting.join()
        assert "tag 8" in here.dump()
        assert "waited for" not in here.dump()
        assert unmarked.cancel()


def test_c_opens_a_connection(library):
    """Opening one that is open, or is being opened, changes nothing."""
    with pscompy.Session() as there, pscompy.Session() as here:
        listening = there.listen()
        connection = here.connect(listening.address)
        address = ctypes.c_void_p(capi.connection(connection))
        assert connection.state is pscompy.ConnectionState.LAZY
        for _ in range(2):
            assert library.open_connection(address_of_table(), address) == 0
        assert connection.state is not pscompy.ConnectionState.LAZY
        sent = connection.isend(b"queued")
        accepted = listening.accept(60)
        assert accepted.recv(timeout=60) == b"queued"
        sent.wait(60)
        assert library.open_connection(address_of_table(), address) == 0


def test_c_opens_a_connection_again_after_it_has_failed(library):
    with pscompy.Session(config={"RETRY": 0}) as here:
        with pscompy.Session() as there:
            gone = there.listen().address
        connection = here.connect(gone)
        address, text = (
            ctypes.c_void_p(capi.connection(connection)),
            ctypes.create_string_buffer(80),
        )
        for _ in range(2):
            assert library.open_connection(address_of_table(), address) == 0
            with pytest.raises(pscompy.ConnectError) as raised:
                connection.send(b"nobody")
            library.error_of(address_of_table(), address, text, ctypes.c_size_t(len(text)))
            assert text.value.decode() == str(raised.value)[: len(text) - 1]
            expect_soon(lambda: connection.state is pscompy.ConnectionState.LAZY)


def test_c_opens_no_connection_that_is_closed(library):
    with pscompy.Session() as there, pscompy.Session() as here:
        connection = here.connect(there.listen().address)
        address = ctypes.c_void_p(capi.connection(connection))
        connection.close()
        assert library.open_connection(address_of_table(), address) == CLOSED


def test_disconnected_a_session_keeps_the_completions_of_c(library):
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
