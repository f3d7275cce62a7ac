"""The exception classes: their bases, their attributes, and pickling."""

import concurrent.futures
import inspect
import pickle
import re
from pathlib import Path

import pytest

import pscompy
from pscompy import errors

STATUS_H = Path(pscompy.__file__).parent / "transport" / "status.h"
CLASSES = [
    getattr(errors, name) for name in errors.__all__ if inspect.isclass(getattr(errors, name))
]

BASES = {
    "ConfigError": (ValueError,),
    "ConnectError": (ConnectionError,),
    "AuthError": (errors.ConnectError,),
    "NameInUse": (errors.ConnectError,),
    "VersionMismatch": (errors.ConnectError,),
    "PeerLost": (ConnectionResetError,),
    "Timeout": (TimeoutError,),
    "Cancelled": (concurrent.futures.CancelledError,),
}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_is_what_it_is_caught_as(kind):
    error = kind("text")
    for base in (errors.PscomError, *BASES.get(kind.__name__, ())):
        assert isinstance(error, base)
    assert str(error) == "text"
    assert error.peer is None


def details(error):
    return type(error), str(error), {k: v for k, v in vars(error).items() if k != "request"}


@pytest.mark.parametrize(
    "error",
    [
        errors.PscomError("text", peer="p7"),
        errors.ConfigError("text", name="PSP_X", value="1", allowed="2"),
        errors.ConnectError("text", peer="p7", candidates={"shm": "another node"}),
        errors.AuthError("text", peer="p7", candidates={"tcp": "refused"}),
        errors.PeerLost("text", peer="p7"),
        errors.Truncated("text", peer="p7", nbytes=9),
        errors.NoMemory("text", peer="p7", nbytes=9),
        errors.OutOfBounds("text", peer="p7", offset=1, nbytes=2, size=2),
        errors.Timeout("text", peer="p7"),
        errors.Cancelled("text"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_whole(error, protocol):
    error.add_note("seen by rank 3") if hasattr(error, "add_note") else None
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert details(copy) == details(error)


def test_a_timeout_pickles_without_its_request():
    error = errors.Timeout("text", request=lambda: None)
    assert pickle.loads(pickle.dumps(error)).request is None
    assert error.request is not None


def header_statuses():
    rows = re.findall(r'X\((\w+), (-?\d+), "([^"]+)"\)', STATUS_H.read_text())
    return {int(value): (name, text) for name, value, text in rows}


def test_every_error_of_the_core_has_its_exception():
    negative = {status for status in header_statuses() if status < 0}
    assert negative == set(errors._STATUS)


def test_the_texts_are_those_of_the_core():
    for status, (_, text) in header_statuses().items():
        if status < 0:
            assert str(errors.from_status(status, "send")).startswith(f"send: {text}")


def test_names_lead_to_their_exceptions():
    named = {name: errors.from_status(value, "x") for value, (name, _) in header_statuses().items()}
    for name, kind in {
        "ERR_PEER_LOST": errors.PeerLost,
        "ERR_CLOSED": errors.Closed,
        "ERR_TRUNCATED": errors.Truncated,
        "ERR_NO_MEMORY": errors.NoMemory,
        "ERR_BOUNDS": errors.OutOfBounds,
        "ERR_REGION": errors.Closed,
        "ERR_TIMEOUT": errors.Timeout,
        "ERR_CANCELLED": errors.Cancelled,
        "ERR_PROTOCOL": errors.ProtocolError,
        "ERR_CONNECT": errors.ConnectError,
        "ERR_UNSUPPORTED": errors.Unsupported,
        "ERR_TRANSPORT": errors.TransportError,
    }.items():
        assert type(named[name]) is kind


def test_details_pass_through():
    truncated = errors.from_status(-9, "recv", nbytes=7, peer="p7")
    assert truncated.nbytes == 7
    assert str(truncated).endswith("longer than the buffer, it has 7 bytes")
    refused = errors.from_status(-4, "recv", nbytes=1 << 36)
    assert str(refused) == "recv: out of memory for a message of 68719476736 bytes"
    assert "unknown status -99" in str(errors.from_status(-99, "recv"))
