"""The store of ranks that no launcher of ours started: torchrun's, or those of any scheduler.

Rank 0 serves PMI-1 over TCP (`store_server`) at a place that all ranks know by their variables.
Before a link carries PMI-1, both sides prove on it that they hold the job's key.
"""

from __future__ import annotations

import hmac
import os
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pscompy.config.config import Config
from pscompy.errors import AuthError, ConfigError, ConnectError, ProtocolError, Timeout
from pscompy.world.bootstrap.pmi1 import Pmi1
from pscompy.world.bootstrap.pmi1_wire import LineBuffer, WireError, pack, parse

if TYPE_CHECKING:
    from pscompy.control.handshake.keys import Key

VERSION = "1"
_PAUSE = 0.1  # seconds between attempts to reach rank 0
_ANSWER = 10.0  # seconds for an answer of a process that listens at the store's port

Fields = dict[str, str]


class Membership(NamedTuple):
    """This process's rank, and the place of the store. `variable` is what moves the store."""

    rank: int
    size: int
    host: str
    port: int
    variable: str

    def __str__(self) -> str:
        return f"the store of rank 0 at {self.host}:{self.port}"


def by_own_variables(config: Config) -> Membership | None:
    """PSP_RANK, PSP_SIZE and PSP_STORE; None if they are not set. Size 1 needs no store."""
    rank, size, place = config["RANK"], config["SIZE"], config["STORE"]
    if size == 1:
        return Membership(0, 1, "", 0, "")
    if rank < 0 and size < 0 and not place:
        return None
    host, _, port = place.rpartition(":")
    if not (0 <= rank < size and host and port.isdecimal()):
        raise ConfigError(
            f"PSP_RANK={rank} PSP_SIZE={size} PSP_STORE={place!r}: a job needs all three, a rank"
            " below the size, and HOST:PORT of rank 0",
            name="PSP_STORE",
        )
    return Membership(rank, size, host.strip("[]"), int(port), "PSP_STORE")


def by_torchrun(environ: Mapping[str, str], config: Config) -> Membership | None:
    """RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which torchrun sets; None without them."""
    names = ("RANK", "WORLD_SIZE", "MASTER_PORT")
    if not all(name in environ for name in (*names, "MASTER_ADDR")):
        return None
    try:
        rank, size, master = (int(environ[name]) for name in names)
    except ValueError:
        given = " ".join(f"{name}={environ[name]!r}" for name in names)
        raise ConfigError(f"{given}: not numbers", name="RANK") from None
    port = config["STORE_PORT"] if config["STORE_PORT"] > 0 else port_beside(master)
    return Membership(rank, size, environ["MASTER_ADDR"], port, "PSP_STORE_PORT")


def port_beside(master: int) -> int:
    """The store's port for a job whose own store holds port `master`: another one, the same on
    all ranks, and below the ports that the kernel gives to outgoing connections."""
    return 0x4000 | ((master ^ 0x2000) & 0x3FFF)


def enter(member: Membership, config: Config) -> Pmi1:
    """The bootstrap of this rank; rank 0 begins to serve the others.

    `ConfigError` if rank 0 cannot listen there, `Timeout` if nobody does for PSP_STORE_TIMEOUT
    seconds, `AuthError` if rank 0 has another key.
    """
    from pscompy.control.handshake.keys import find_key
    from pscompy.control.precon import LinkOptions

    key, options = find_key(config), LinkOptions.of(config)
    if member.rank == 0:
        from pscompy.world.bootstrap.store_server import Store

        with Store(member, key.secret, options).start() as sock:
            return Pmi1(sock.fileno(), 0, member.size)
    with _reach(member, config["STORE_TIMEOUT"]) as sock:
        options.apply(sock)
        sock.settimeout(_ANSWER)
        _prove(sock, member, key)
        sock.settimeout(None)
        return Pmi1(sock.fileno(), member.rank, member.size)


def _reach(member: Membership, seconds: float) -> socket.socket:
    """A link to rank 0, which may start later than this process, or whose name may be unknown
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
    """A link to the process that listens there. Raises `OSError` if nobody does."""
    sock = socket.create_connection((member.host, member.port), timeout=_ANSWER)
    if sock.getsockname() == sock.getpeername():  # the kernel gave it this very port
        sock.close()
        raise ConnectionRefusedError("nobody listens there")
    return sock


# ---- the proof of the key, on both sides ----


def nonce() -> str:
    return os.urandom(16).hex()


def proof(key: bytes, side: str, hello: Fields, challenge: str) -> str:
    """The proof of one side ("caller" or "store") for this hello and this challenge."""
    said = "\n".join([side, VERSION, challenge, *(f"{k}={hello[k]}" for k in sorted(hello))])
    return hmac.digest(key, b"pscompy store\n" + said.encode(), "sha256").hex()


def _prove(sock: socket.socket, member: Membership, key: Key) -> None:
    """Prove the key to the store, and let the store prove it. AuthError if one cannot."""
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
            f"what listens at {member.host}:{member.port} does not answer as {member} does:"
            f" {error}; {member.variable} names another port",
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
    raise WireError("it has closed the link")
