"""Rank 0's side of the store: PMI-1 over TCP for callers that have proved the job's key."""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import socket
from functools import partial

from pscompy.control.event_loop import READ, ControlThread
from pscompy.control.precon_options import PreconOptions
from pscompy.errors import ConfigError
from pscompy.world.bootstrap.ends import Replies
from pscompy.world.bootstrap.membership import Membership
from pscompy.world.bootstrap.pmi1_server import Abort, Server
from pscompy.world.bootstrap.pmi1_wire import JOB_PREFIX, LineBuffer, WireError, pack, parse
from pscompy.world.bootstrap.store_proof import VERSION, Fields, nonce, proof

logger = logging.getLogger(__name__)

# maximum number of callers without a proof, beyond the number of ranks; a newer caller replaces the
# oldest
_STRANGERS = 64
_PAUSE = 0.25  # seconds without accepting, after a caller could not be accepted


class _Caller:
    """One socket to the store; `rank` is set by a valid proof."""

    def __init__(self, sock: socket.socket, rank: int | None = None) -> None:
        self.sock = sock
        self.rank = rank
        self.lines = LineBuffer()
        self.hello: Fields = {}
        self.challenge = ""


class Store:
    """The store of one job, on a thread of rank 0 that ends with the process."""

    def __init__(self, member: Membership, key: bytes, options: PreconOptions) -> None:
        """Listen at the member's port. `ConfigError` if that is impossible."""
        self._key = key
        self._options = options
        self._server = Server([1] * member.size, f"{JOB_PREFIX}{os.urandom(16).hex()}")
        # sockets to the store by descriptor, the earliest first
        self._callers: dict[int, _Caller] = {}
        self._ranks: dict[int, _Caller] = {}
        self._told = False
        self._listener = _listen(member)
        self._thread = ControlThread("pscompy store")

    def start(self) -> socket.socket:
        """Serve from now on; returns rank 0's own socket to the store."""
        ours, theirs = socket.socketpair()
        self._listener.setblocking(False)
        self._listen()
        self._admit(_Caller(ours, 0))
        self._ranks[0] = self._callers[ours.fileno()]
        os.register_at_fork(after_in_child=self._abandon)
        self._thread.start()
        return theirs

    def _abandon(self) -> None:
        """Close the sockets in a child after a fork, so that they end with rank 0."""
        self._thread.abandon()
        self._listener.close()
        for caller in self._callers.values():
            caller.sock.close()

    # ---- on the thread ----

    def _listen(self) -> None:
        self._thread.register(self._listener.fileno(), READ, self._on_call)

    def _on_call(self, _: int) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # the caller has left
            return
        except OSError:  # no descriptor or no memory is left: the caller waits
            self._thread.unregister(self._listener.fileno())
            self._thread.later(_PAUSE, self._listen)
            return
        self._options.apply(sock)
        strangers = [caller for caller in self._callers.values() if caller.rank is None]
        if len(strangers) >= self._server.size + _STRANGERS:
            self._drop(strangers[0])
        self._admit(_Caller(sock))

    def _admit(self, caller: _Caller) -> None:
        self._callers[caller.sock.fileno()] = caller
        self._thread.register(caller.sock.fileno(), READ, partial(self._on_ready, caller))

    def _on_ready(self, caller: _Caller, _: int) -> None:
        try:
            data = caller.sock.recv(65536, socket.MSG_DONTWAIT)
            lines = caller.lines.feed(data)
            for line in lines:
                self._on_line(caller, line)
        except BlockingIOError:
            return
        # Abort ends only the socket: World.abort ends the process of the caller itself
        except (OSError, ValueError, Abort):
            data = b""
        if not data:
            self._drop(caller)

    def _on_line(self, caller: _Caller, line: bytes) -> None:
        if caller.rank is not None:
            self._deliver(self._server.receive(caller.rank, line))
            return
        command, fields = parse(line)
        if command == "hello" and not caller.hello:
            caller.hello, caller.challenge = fields, nonce()
            caller.sock.send(pack("challenge", nonce=caller.challenge))
        elif command == "proof" and caller.hello:
            self._judge(caller, fields.get("proof", ""))
        else:
            raise WireError("no proof")

    def _judge(self, caller: _Caller, given: str) -> None:
        expected = proof(self._key, "caller", caller.hello, caller.challenge)
        valid = hmac.compare_digest(expected.encode(), given.encode())
        if flaw := self._flaw(caller.hello) if valid else "other key":
            refusal = pack("refused", msg=flaw.replace(" ", "_")) if valid else pack("other_key")
            caller.sock.send(refusal)
            self._tell(caller, flaw)
            raise WireError(flaw)
        caller.rank = int(caller.hello["rank"])
        self._ranks[caller.rank] = caller
        answer = proof(self._key, "store", caller.hello, caller.challenge)
        caller.sock.send(pack("welcome", proof=answer))

    def _flaw(self, hello: Fields) -> str:
        """Return the reason to refuse a caller that has proved the key; empty if there is none."""
        rank, size = int(hello.get("rank", "-1")), self._server.size
        if hello.get("version") != VERSION:
            return f"rank 0 speaks version {VERSION} of the store"
        if hello.get("size") != str(size) or not 0 < rank < size:
            return f"rank {rank} of {hello.get('size')} in a job of {size} ranks"
        return f"there is a rank {rank} already" if rank in self._ranks else ""

    def _tell(self, caller: _Caller, flaw: str) -> None:
        """Log only the first caller that was refused, because many may follow."""
        if not self._told:
            self._told = True
            advice = "; give all ranks the same PSP_KEY" if flaw == "other key" else ""
            where = caller.sock.getpeername()[0]
            logger.error("the store has refused a rank at %s: %s%s", where, flaw, advice)

    def _drop(self, caller: _Caller) -> None:
        self._thread.unregister(caller.sock.fileno())
        del self._callers[caller.sock.fileno()]
        caller.sock.close()
        if caller.rank is not None:
            self._deliver(self._server.leave(caller.rank))
            self._deliver(self._server.end(caller.rank, None))

    def _deliver(self, replies: Replies) -> None:
        for rank, line in replies:
            with contextlib.suppress(OSError):  # the rank has left, which the next read reports
                self._ranks[rank].sock.send(line, socket.MSG_DONTWAIT)


def _listen(member: Membership) -> socket.socket:
    """Return a socket at the store's port: on the loopback if the store's host is one, else
    everywhere."""
    host, port = member.host, member.port
    local = host in ("localhost", "::1") or host.startswith("127.")
    try:
        if local:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, port), family=family, backlog=1024)
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        return socket.create_server(("", port), family=family, backlog=1024, dualstack_ipv6=dual)
    except OSError as error:
        raise ConfigError(
            f"rank 0 cannot listen at port {port} for the other ranks ({error.strerror}): another"
            f" process does, or has this rank; {member.variable} names another port",
            name=member.variable,
            value=str(port),
        ) from error
