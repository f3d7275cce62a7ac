"""Bad input over real sockets: typed errors, bounded waits, and a session that still works."""

from __future__ import annotations

import os
import random
import shutil
import socket as sockets
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from precon_pairs import KEY, identity

import pscompy
from pscompy import AuthError, ConnectError, NameInUse, Session, Timeout, VersionMismatch
from pscompy.control import admission
from pscompy.control.addresses import Address
from pscompy.control.handshake.events import HandshakeEvent, Refused
from pscompy.control.handshake.frames import Kind, RefuseCode
from pscompy.control.handshake.handshake import Handshake, Side, frames
from pscompy.control.handshake.keys import Key, find_key
from pscompy.control.handshake.limits import VERSION_MAX, VERSION_MIN
from tests.names import ANOTHER_KEY

Make = Callable[..., Session]


def raw(address: str) -> sockets.socket:
    place = Address.parse(address).locations[0]
    return sockets.create_connection((place.host, place.port), timeout=60)


def check_still_serves(server: Session, listening: pscompy.Socket) -> None:
    """Check that a well-behaved client can connect and exchange messages."""
    with Session() as client:
        connection = client.connect(listening.address)
        connection.send(b"ping", timeout=60)
        while True:
            accepted = listening.accept(60)
            if accepted.peer.startswith(client.name):
                break
        assert bytes(accepted.recv(timeout=60)) == b"ping"


@contextmanager
def raw_server(talk: Callable[[sockets.socket], object]) -> Iterator[str]:
    """A server that is no session; `talk` gets each accepted socket."""
    with sockets.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listening.accept()
                except OSError:
                    return
                with accepted, suppress(OSError):
                    talk(accepted)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(sockets.SHUT_RDWR)
        thread.join(60)


# ---- keys, names, versions ----------------------------------------------------------------------


def test_another_key_is_an_auth_error_that_names_the_variable(session: Make) -> None:
    server = session("server")
    listening = server.listen()
    with pytest.raises(AuthError, match="PSP_KEY") as caught:
        session(KEY=ANOTHER_KEY).connect(listening.address).open(60)
    assert ANOTHER_KEY not in str(caught.value)
    check_still_serves(server, listening)


def test_a_bad_key_file_is_an_auth_error_at_first_use(
    session: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PSP_KEY")
    path = tmp_path / "key"
    path.write_text("everybody may read this")
    path.chmod(0o644)
    own = session(KEY_FILE=str(path))
    with pytest.raises(AuthError, match="chmod 600"):
        own.listen()
    with pytest.raises(AuthError, match="chmod 600"):
        own.connect("127.0.0.1:1").send(b"x")


OURS = rf"{VERSION_MIN}\.\.\.{VERSION_MAX}"


def test_versions_that_do_not_overlap(session: Make) -> None:
    server = session("server")
    listening = server.listen()
    key = find_key(server._config)
    stranger = Handshake(Side.DIALER, key, identity("x"), Kind.PLAIN, versions=(8, 9))
    with raw(listening.address) as precon:
        precon.sendall(stranger.output())
        with pytest.raises(VersionMismatch, match=rf"8\.\.\.9.*{OURS}"):
            stranger.receive(precon.recv(1000))
        assert precon.recv(1000) == b""
    check_still_serves(server, listening)

    def answer(precon: sockets.socket) -> None:
        machine = Handshake(Side.LISTENER, key, identity("x"), versions=(8, 9))
        with pytest.raises(VersionMismatch):
            machine.receive(precon.recv(1000))
        precon.sendall(machine.output())

    with raw_server(answer) as address, pytest.raises(VersionMismatch, match=r"8\.\.\.9"):
        session().connect(address).open(60)


def test_a_guard_of_no_connection_is_refused(session: Make) -> None:
    server = session("server")
    listening = server.listen()
    machine = Handshake(
        Side.DIALER, find_key(server._config), identity("x"), Kind.GUARD, token=bytes(32)
    )
    events: list[HandshakeEvent] = []
    with raw(listening.address) as precon:
        while not events:
            precon.sendall(machine.output())
            events += machine.receive(precon.recv(1000))
    assert events == [Refused(RefuseCode.NOT_HERE, "there is no such connection")]
    check_still_serves(server, listening)


def test_a_name_belongs_to_one(session: Make) -> None:
    server = session("server")
    listening = server.listen()
    with pytest.raises(NameInUse, match="server"):
        session("server").connect(listening.address).open(60)
    first = session("twin")
    first.connect(listening.address).open(60)
    first.connect(listening.address).open(60)  # one session may have several connections
    with pytest.raises(NameInUse, match="twin"):
        session("twin").connect(listening.address).open(60)
    first.close()
    heir = session("twin")
    deadline = time.monotonic() + 60
    while True:
        try:
            heir.connect(listening.address).open(60)
            break
        except NameInUse:
            assert time.monotonic() < deadline
    check_still_serves(server, listening)


# ---- peers that are not sessions ----------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 100, os.urandom(4000)]
)
def test_a_server_of_another_kind(session: Make, words: bytes) -> None:
    own = session()
    with raw_server(lambda precon: precon.sendall(words)) as address:
        with pytest.raises(ConnectError, match="does not speak pscompy"):
            own.connect(address).open(60)
    check_still_serves(own, own.listen())


def test_a_server_that_hangs_up_is_tried_again_for_a_bounded_time(session: Make) -> None:
    tries: list[None] = []
    with raw_server(lambda precon: tries.append(None)) as address:
        with pytest.raises(ConnectError, match="ended the precon"):
            session(RETRY=3).connect(address).open(60)
    assert len(tries) == 4


def test_a_server_that_never_answers_is_waited_for_as_long_as_wanted(session: Make) -> None:
    own = session(SHUTDOWN_TIMEOUT=1)
    gate = threading.Event()
    with raw_server(lambda precon: gate.wait(60)) as address:
        connection = own.connect(address)
        with pytest.raises(Timeout):
            connection.open(0.1)
        assert connection.state is pscompy.ConnectionState.CONNECTING
        check_still_serves(own, own.listen())
        own.close()
        gate.set()


def test_a_host_that_does_not_exist(session: Make) -> None:
    with pytest.raises(ConnectError, match=r"^no-such-host.invalid:1 cannot be reached: [^:]+$"):
        session(RETRY=0).connect("no-such-host.invalid:1").open(200)


@pytest.mark.parametrize("port", [-1, 65536, 22222222])
def test_a_port_that_cannot_be(session: Make, port: int) -> None:
    """Without a check the system would use the low 16 bits of the number."""
    with pytest.raises(ConnectError, match=rf":{port}: a port is a number from 0 to 65535"):
        session().listen("127.0.0.1", port)


def test_strangers_scans_and_half_open_precons_do_not_keep_others_out(
    session: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers need not wait until the strangers' time limit ends, which never happens in this
    test."""
    monkeypatch.setattr(admission, "UNPROVED_SECONDS", 10_000.0)
    monkeypatch.setattr(admission, "SLOTS_MAX", 64)
    server = session("server")
    listening = server.listen()
    half_open = [raw(listening.address) for _ in range(admission.SLOTS_MAX + 30)]
    for number, words in enumerate((b"GET / HTTP/1.1\r\n\r\n", b"\x93pscompy", os.urandom(64))):
        with raw(listening.address) as precon:
            precon.sendall(words)
            if number == 0:
                assert precon.recv(100) == b""
    for _ in range(50):  # like a port scan
        raw(listening.address).close()
    check_still_serves(server, listening)
    for precon in half_open:
        precon.close()


def test_precons_that_reset_at_every_stage_do_no_harm(session: Make) -> None:
    """Peers that hold the key reset the precon after `cut` bytes."""
    server = session("server")
    listening = server.listen()
    key = find_key(server._config)
    for cut in (1, 63, 64, 65, 95, 96, 100, 150, 200, 250):
        _talk_and_reset(listening.address, key, cut)
    check_still_serves(server, listening)


def _talk_and_reset(address: str, key: Key, cut: int) -> None:
    machine = Handshake(Side.DIALER, key, identity(f"cut {cut}"), Kind.PLAIN)
    with raw(address) as precon:
        precon.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
        sent = 0
        while sent < cut:
            data = machine.output()[: cut - sent]
            if not data and machine.authenticated:
                return  # all its bytes have been sent
            if not data:
                machine.receive(precon.recv(4096))
            precon.sendall(data)
            sent += len(data)


def test_garbage_of_one_who_holds_the_key(session: Make) -> None:
    server = session("server")
    listening = server.listen()
    key = find_key(server._config)
    luck = random.Random(1)
    for number in range(40):
        machine = Handshake(Side.DIALER, key, identity(f"fuzz {number}"), Kind.PLAIN)
        with raw(listening.address) as precon:
            precon.sendall(machine.output())
            machine.receive(precon.recv(4096))
            precon.sendall(machine.output())
            with suppress(pscompy.PscomError):
                machine.receive(precon.recv(4096))
            body = luck.randbytes(luck.randrange(200))
            kind = luck.choice(list(frames.FrameType))
            content = struct.pack("<IB3s", len(body), kind, b"\0\0\0") + body
            machine._stream.send_content(content)
            precon.sendall(machine.output())
            precon.settimeout(60)
            with suppress(ConnectionResetError):
                while precon.recv(4096):
                    pass
    check_still_serves(server, listening)


# ---- candidates that fail -----------------------------------------------------------------------


def test_the_next_candidate_is_tried_where_one_does_not_come_up(
    session: Make,
) -> None:
    # pytest's folders are too long for the path of a Unix socket
    folders = [tempfile.mkdtemp() for _ in range(2)]
    server, client = (session(SHM_DIR=folder) for folder in folders)
    listening = server.listen()
    for folder in folders:  # shm cannot connect without its folder
        shutil.rmtree(folder)
    connection = client.connect(listening.address)
    connection.send(b"over what is left", timeout=60)
    accepted = listening.accept(60)
    assert bytes(accepted.recv(timeout=60)) == b"over what is left"
    for side in (connection, accepted):
        explained = side.explain()
        assert side.transport == explained.choice == "tcp"
        assert explained.candidates[:2] == ("shm", "tcp")
        assert "shm" in explained.reasons
        assert "tcp: chosen" in str(explained)
        assert explained.as_dict()["reasons"]["shm"] in str(explained)


def test_what_the_acceptor_has_switched_off_is_said_to_the_connector(session: Make) -> None:
    listening = session("server", SHM=0).listen()
    connection = session("client").connect(listening.address)
    connection.open(60)
    assert connection.transport == "tcp"
    assert connection.explain().reasons["shm"] == "excluded by PSP_SHM=0 (there)"


def test_where_nothing_is_left_both_sides_reasons_are_listed(session: Make) -> None:
    server = session("server", SHM=0)
    listening = server.listen()
    with pytest.raises(ConnectError, match="no transport") as caught:
        session("client", TCP=0).connect(listening.address).open(60)
    assert caught.value.candidates["shm"] == "excluded by PSP_SHM=0 (there)"
    assert caught.value.candidates["tcp"] == "excluded by PSP_TCP=0 (here)"
    assert caught.value.peer == "server"
    check_still_serves(server, listening)


def test_the_users_priority_orders_the_candidates(session: Make) -> None:
    listening = session("server").listen()
    connection = session("client", TCP=2).connect(listening.address)
    connection.open(60)
    assert connection.transport == "tcp"
    assert connection.explain().candidates[0] == "tcp"


def test_explain_names_thresholds_and_variables(session: Make) -> None:
    listening = session("server").listen()
    client = session("client", RENDEZVOUS=3000, RNDV_SCHEME="put")
    connection = client.connect(listening.address)
    assert str(connection.explain()) == "connection: not connected yet"
    connection.open(60)
    explained = connection.explain()
    assert explained.as_dict()["eager_max"] == 2999
    text = str(explained)
    for word in ("up to 2999 bytes: eager", "PSP_SHM", "PSP_SHM_RENDEZVOUS", "PSP_RNDV_SCHEME"):
        assert word in text
    assert any(protocol.startswith("rendezvous") for _, protocol, *_ in explained.table())
    assert "rendezvous put" in text
    assert "eager bcopy" in text


def test_the_key_of_the_helpers_is_not_the_sessions(session: Make) -> None:
    """The tests above would prove nothing if the session had the helpers' key."""
    assert find_key(session()._config).secret != KEY.secret
