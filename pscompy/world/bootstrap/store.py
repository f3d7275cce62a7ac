"""The store of ranks that have no launcher with PMI: those of torchrun, or of any scheduler.

Rank 0 serves PMI-1 over TCP (`store_server`) at a place that all ranks know by their variables.
Before a socket carries PMI-1, both sides prove on it that they hold the job's key.
"""

from __future__ import annotations

import hmac
import socket
import time
from typing import TYPE_CHECKING

from pscompy.config.config import Config
from pscompy.errors import AuthError, ConfigError, ConnectError, ProtocolError, Timeout
from pscompy.world.bootstrap.membership import Membership
from pscompy.world.bootstrap.pmi1 import Pmi1
from pscompy.world.bootstrap.pmi1_wire import LineBuffer, WireError, pack, parse
from pscompy.world.bootstrap.store_proof import VERSION, Fields, nonce, proof

if TYPE_CHECKING:
    from pscompy.control.handshake.keys import Key

_PAUSE = 0.1  # seconds between attempts to reach rank 0
_ANSWER = 10.0  # seconds for an answer of a process that listens at the store's port


def enter(member: Membership, config: Config) -> Pmi1:
    """Return the bootstrap of this rank; rank 0 begins to serve the others.

    Raises `ConfigError` if rank 0 cannot listen at the store's port, `Timeout` if no process
    listens there for PSP_STORE_TIMEOUT seconds, `AuthError` if rank 0 has another key.
    """
    from pscompy.control.handshake.keys import find_key
    from pscompy.control.precon_options import PreconOptions

    key, options = find_key(config), PreconOptions.of(config)
    if member.rank == 0:
        from pscompy.world.bootstrap.store_server import Store

        with Store(member, key.secret, options).start() as sock:
            return Pmi1(sock.fileno(), 0, member.size, str(member))
    with _reach(member, config["STORE_TIMEOUT"]) as sock:
        options.apply(sock)
        sock.settimeout(_ANSWER)
        _prove(sock, member, key)
        sock.settimeout(None)
        return Pmi1(sock.fileno(), member.rank, member.size, str(member))


def _reach(member: Membership, seconds: float) -> socket.socket:
    """Connect to rank 0, which may start later than this process, and whose name may be unknown
    until then."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return _connect(member)
        except OSError as error:
            if time.monotonic() > deadline:
                raise Timeout(
                    f"{member} cannot be reached within PSP_STORE_TIMEOUT={seconds:g} s: {error}",
                    peer="rank 0",
                ) from error
            time.sleep(_PAUSE)


def _connect(member: Membership) -> socket.socket:
    """Connect to the process that listens at the store's port. Raises `OSError` if none does."""
    sock = socket.create_connection((member.host, member.port), timeout=_ANSWER)
    # A socket to which the kernel has given the store's port as its own is connected to itself.
    if sock.getsockname() == sock.getpeername():
        sock.close()
        raise ConnectionRefusedError("nobody listens there")
    return sock


def _prove(sock: socket.socket, member: Membership, key: Key) -> None:
    """Prove the key to the store, and let the store prove it. Raises `AuthError` if either side
    cannot."""
    hello = {
        "version": VERSION,
        "rank": str(member.rank),
        "size": str(member.size),
        "nonce": nonce(),
    }
    challenge = _ask(sock, member, ("challenge",), pack("hello", **hello)).get("nonce", "")
    mine = pack("proof", proof=proof(key.secret, "caller", hello, challenge))
    answer = _ask(sock, member, ("welcome", "other_key"), mine).get("proof", "")
    if not hmac.compare_digest(
        answer.encode(), proof(key.secret, "store", hello, challenge).encode()
    ):
        raise AuthError(
            f"{member} holds another key than this rank, whose key is from {key.origin}: give all"
            " ranks the same PSP_KEY",
            peer="rank 0",
        )


def _ask(sock: socket.socket, member: Membership, expected: tuple[str, ...], line: bytes) -> Fields:
    """Send a line; returns the fields of the answer. ConfigError if the store refuses."""
    try:
        sock.sendall(line)
        command, fields = parse(_read_line(sock))
    except (OSError, WireError) as error:
        raise ConnectError(
            f"the program that listens at {member.host}:{member.port} does not answer as"
            f" {member} does: {error}; {member.variable} names another port",
            peer="rank 0",
        ) from error
    if command == "refused":
        raise ConfigError(f"{member} refuses: {fields.get('msg', '').replace('_', ' ')}")
    if command not in expected:
        raise ProtocolError(f"{member} answered with {command}", peer="rank 0")
    return fields


def _read_line(sock: socket.socket) -> bytes:
    lines = LineBuffer()
    while data := sock.recv(4096):
        for line in lines.feed(data):
            return line
    raise WireError("it has closed the connection")
