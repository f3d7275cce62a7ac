"""The public names and signatures are fixed, because other programs call them.

tests/messages/test_signatures.py checks those inherited from the extension.
"""

import concurrent.futures
import inspect
import pickle

import pytest

import pscompy

SESSION = {
    "__init__": "(name=None, config=None)",
    "listen": "(host=None, port=0)",
    "connect": "(address)",
    "register": "(buf)",
    "pin": "(buf)",
    "serve": "(timeout=None)",
    "on_message": "(id, handler)",
    "close": "()",
    "fileno": "()",
    "arm": "()",
    "progress": "()",
}
SOCKET = {"accept": "(timeout=None)", "iaccept": "()", "close": "()"}
CONNECTION = {
    "open": "(timeout=None)",
    "iopen": "()",
    "close": "()",
    "explain": "()",
    "send_obj": "(obj, tag=0, timeout=None, lend=False)",
    "isend_obj": "(obj, tag=0, lend=False)",
    "recv_obj": "(tag=-1, timeout=None)",
    "irecv_obj": "(tag=-1)",
    "probe_obj": "(tag=-1, timeout=None)",
}
COMMUNICATOR = {
    "barrier": "(timeout=None)",
    "ibarrier": "()",
    "close": "()",
    "dup": "()",
    "split": "(color, key=0)",
    "split_by_node": "()",
    "split_by_module": "()",
    "create": "(ranks, timeout=None)",
    "shared": "(shape, dtype=<class 'float'>)",
    "broadcast": "(buf, root=0)",
    "bcast": "(buf, *, root=0, timeout=None)",
    "ibcast": "(buf, *, root=0)",
    "reduce": "(sendbuf, recvbuf=None, *, op='sum', root=0, timeout=None)",
    "allreduce": "(sendbuf, recvbuf=None, *, op='sum', timeout=None)",
    "scan": "(sendbuf, recvbuf=None, *, op='sum', timeout=None)",
    "exscan": "(sendbuf, recvbuf=None, *, op='sum', timeout=None)",
    "reduce_scatter": "(sendbuf, recvbuf=None, *, op='sum', counts=None, timeout=None)",
    "gather": "(sendbuf, recvbuf=None, *, root=0, counts=None, timeout=None)",
    "scatter": "(sendbuf=None, recvbuf=None, *, root=0, counts=None, timeout=None)",
    "allgather": "(sendbuf, recvbuf=None, *, counts=None, timeout=None)",
    "alltoall": "(sendbuf, recvbuf=None, *, counts=None, timeout=None)",
    "submit": "(rank, function, /, *args, **kwargs)",
    "call": "(rank, function, /, *args, **kwargs)",
    "with_options": "(*, timeout=None, on_sent=None)",
    "serve": "(timeout=None)",
    "empty": "(shape, dtype=<class 'float'>)",
    "allocate": "(nbytes)",
    "pin": "(buf)",
    "register": "(buf)",
    "send_obj": "(obj, dest, tag=0, timeout=None, lend=False)",
    "isend_obj": "(obj, dest, tag=0, lend=False)",
    "recv_obj": f"(source={pscompy.ANY_SOURCE}, tag=-1, timeout=None)",
    "irecv_obj": f"(source={pscompy.ANY_SOURCE}, tag=-1)",
    "probe_obj": f"(source={pscompy.ANY_SOURCE}, tag=-1, timeout=None)",
    "__len__": "()",
    "__iter__": "()",
}
WORLD = {"__init__": "(config=None)", "close": "()", "abort": "(code=1)"}
PROPERTIES = {
    pscompy.Session: ("stats",),
    pscompy.Socket: ("address",),
    pscompy.Connection: ("state", "transport", "stats"),
    pscompy.Communicator: ("rank", "size", "module", "modules", "session", "stats"),
}
SPECIAL = {
    pscompy.Session: "__enter__ __exit__ __aenter__ __aexit__",
    pscompy.World: "__enter__ __exit__ __aenter__ __aexit__",
    pscompy.Communicator: "__enter__ __exit__ __aenter__ __aexit__ __getitem__ connection",
    pscompy.Socket: "__enter__ __exit__ __aenter__ __aexit__ __iter__ __aiter__",
    pscompy.Connection: "__enter__ __exit__",
    pscompy.Request: "__await__",
}
ERRORS = {
    "ConfigError": ("PscomError", ValueError),
    "ConnectError": ("PscomError", ConnectionError),
    "AuthError": ("ConnectError",),
    "NameInUse": ("ConnectError",),
    "VersionMismatch": ("ConnectError",),
    "ProtocolError": ("PscomError",),
    "PeerLost": ("PscomError", ConnectionResetError),
    "Closed": ("PscomError",),
    "OutOfDescriptors": ("PscomError", OSError),
    "TransportError": ("PscomError",),
    "Unsupported": ("PscomError",),
    "Truncated": ("PscomError",),
    "Mismatch": ("PscomError",),
    "OutOfBounds": ("PscomError", IndexError),
    "NoMemory": ("PscomError", MemoryError),
    "Timeout": ("PscomError", TimeoutError),
    "Cancelled": ("PscomError", concurrent.futures.CancelledError),
    "ParcelError": ("PscomError",),
    "RemoteError": ("PscomError",),
}
STATES = ["LAZY", "CONNECTING", "UP", "CLOSING", "CLOSED", "FAILED"]


def plain(function: object) -> str:
    """The signature without self and annotations."""
    signature = inspect.signature(function)
    kept = [p.replace(annotation=p.empty) for p in list(signature.parameters.values())[1:]]
    return str(signature.replace(parameters=kept, return_annotation=signature.empty))


@pytest.mark.parametrize(
    ("owner", "name", "text"),
    [
        (owner, name, text)
        for owner, methods in (
            (pscompy.Session, SESSION),
            (pscompy.Socket, SOCKET),
            (pscompy.Connection, CONNECTION),
            (pscompy.Communicator, COMMUNICATOR),
            (pscompy.World, WORLD),
        )
        for name, text in methods.items()
    ],
)
def test_methods(owner, name, text):
    method = getattr(owner, name)
    assert plain(method) == text
    assert name.startswith("__") or inspect.getdoc(method)


@pytest.mark.parametrize(
    ("owner", "name"), [(owner, name) for owner, names in PROPERTIES.items() for name in names]
)
def test_properties(owner, name):
    assert isinstance(inspect.getattr_static(owner, name), property)


@pytest.mark.parametrize(
    ("owner", "name"), [(owner, name) for owner, names in SPECIAL.items() for name in names.split()]
)
def test_special_methods(owner, name):
    assert callable(getattr(owner, name))


def test_a_world_is_a_communicator_that_has_a_session():
    assert issubclass(pscompy.World, pscompy.Communicator)
    assert not issubclass(pscompy.World, pscompy.Session)
    for name in ("listen", "connect", "fileno", "progress"):
        assert not hasattr(pscompy.World, name)
    assert not hasattr(pscompy.Communicator, "abort")


def test_states():
    assert [state.name for state in pscompy.ConnectionState] == STATES


@pytest.mark.parametrize(("name", "bases"), ERRORS.items())
def test_errors(name, bases):
    kind = getattr(pscompy, name)
    for base in bases:
        assert issubclass(kind, getattr(pscompy, base) if isinstance(base, str) else base)
    error = pickle.loads(pickle.dumps(kind("what happened")))
    assert type(error) is kind
    assert str(error) == "what happened"
    assert error.peer is None


def test_there_are_no_other_errors():
    names = {
        name
        for name in pscompy.__all__
        if inspect.isclass(getattr(pscompy, name))
        and issubclass(getattr(pscompy, name), BaseException)
        and not issubclass(getattr(pscompy, name), Warning)
    }
    assert names == {"PscomError", *ERRORS}


def test_what_errors_carry():
    assert pscompy.ConnectError("x", candidates={"shm": "y"}).candidates == {"shm": "y"}
    assert pscompy.Truncated("x", nbytes=7).nbytes == 7
    assert pscompy.Timeout("x").request is None


def test_the_public_names():
    assert set(pscompy.__all__) >= {
        *("ANY_SOURCE", "ANY_TAG", "Communicator", "Connection", "ConnectionState"),
        *("MemoryRegion", "Op", "PscomError"),
        *("PersistentRequest", "Request", "Session", "Socket", "Status", "World", "get_include"),
        *("wait_all", "wait_any", *ERRORS),
    }


def test_a_region_has_a_key_for_peers():
    with pscompy.Session() as session:
        region = session.register(bytearray(8))
        assert isinstance(region.rkey, bytes)
