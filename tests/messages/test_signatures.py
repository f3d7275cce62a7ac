"""Signatures of the public types; they are fixed, because other programs call them."""

from __future__ import annotations

import inspect

import pytest

import pscompy
from pscompy.api.c import _binding

ANY = pscompy.ANY_SOURCE

CONNECTION = {
    "send": "(buf, tag=0, timeout=None)",
    "recv": "(buf=None, tag=-1, timeout=None)",
    "recv_status": "(tag=-1, timeout=None)",
    "recv_view": "(tag=-1, timeout=None, dtype=None, shape=None)",
    "isend": "(buf, tag=0, lend=False)",
    "ssend": "(buf, tag=0, timeout=None)",
    "issend": "(buf, tag=0, lend=False)",
    "irecv": "(buf=None, tag=-1)",
    "sendrecv": "(sendbuf, recvbuf=None, sendtag=0, recvtag=-1, timeout=None)",
    "probe": "(tag=-1, timeout=None)",
    "iprobe": "(tag=-1)",
    "put": "(buf, rkey, offset=0)",
    "get": "(buf, rkey, offset=0)",
    "am_send": "(id, header, payload)",
}
COMMUNICATOR = {
    "connection": "(rank, /)",
    "send": "(buf, dest, tag=0, timeout=None)",
    "recv": f"(buf=None, source={ANY}, tag=-1, timeout=None)",
    "recv_view": f"(source={ANY}, tag=-1, timeout=None, dtype=None, shape=None)",
    "isend": "(buf, dest, tag=0, lend=False)",
    "ssend": "(buf, dest, tag=0, timeout=None)",
    "issend": "(buf, dest, tag=0, lend=False)",
    "irecv": f"(buf=None, source={ANY}, tag=-1)",
    "probe": f"(source={ANY}, tag=-1, timeout=None)",
    "iprobe": f"(source={ANY}, tag=-1)",
}
REQUEST = {
    "wait": "(timeout=None)",
    "test": "()",
    "result": "(timeout=None)",
    "done": "()",
    "cancel": "()",
    "cancelled": "()",
    "exception": "(timeout=None)",
    "add_done_callback": "(fn, /)",
}


def without_self(function: object) -> str:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return str(signature.replace(parameters=list(signature.parameters.values())[1:]))


@pytest.mark.parametrize(
    ("owner", "name", "text"),
    [
        *((_binding.Connection, name, text) for name, text in CONNECTION.items()),
        *((_binding.Communicator, name, text) for name, text in COMMUNICATOR.items()),
        *((_binding.Request, name, text) for name, text in REQUEST.items()),
    ],
)
def test_methods(owner: type, name: str, text: str) -> None:
    assert without_self(getattr(owner, name)) == text
    assert inspect.getdoc(getattr(owner, name))


def test_functions() -> None:
    assert str(inspect.signature(pscompy.wait_all)) == "(requests, timeout=None)"
    assert str(inspect.signature(pscompy.wait_any)) == "(requests, timeout=None)"


def test_constants() -> None:
    assert pscompy.ANY_TAG == _binding.ANY_TAG == -1
    assert pscompy.ANY_SOURCE == _binding.ANY_SOURCE
    assert pscompy.Status._fields == ("source", "tag", "nbytes")


def test_public_types_are_the_extensions() -> None:
    assert pscompy.Request is _binding.Request
    assert issubclass(pscompy.Connection, _binding.Connection)
    for type_ in (pscompy.Request, pscompy.Connection):
        assert type_.__module__.startswith("pscompy")


def test_capsule_for_other_extensions() -> None:
    import pscompy.core

    assert 'capsule object "pscompy.core._api"' in repr(pscompy.core._api)


def test_bind_refuses_another_abi() -> None:
    table = bytearray(512)
    table[0] = 99
    from pscompy.api.request import Status
    from pscompy.core import ffi

    address = int(ffi.cast("uintptr_t", ffi.from_buffer(table)))
    with pytest.raises(ImportError, match=r"rebuild: pip install -e \."):
        _binding.bind(address, Status)


def test_types_that_are_not_made_by_hand() -> None:
    with pytest.raises(TypeError):
        _binding.Request()
    with pytest.raises(TypeError):
        _binding.Message()
    with pytest.raises(TypeError, match="belongs to no session"):
        _binding.Connection().send(b"")
    with pytest.raises(TypeError, match="was not opened"):
        _binding.Communicator().recv()
