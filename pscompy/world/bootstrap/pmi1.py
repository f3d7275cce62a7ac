"""The rank's side of PMI-1: a descriptor or a port of the launcher.

Several threads may call at once, also during a barrier, which may take long. One of the threads
that wait for replies reads for all of them; when its own reply has arrived, another waiting thread
goes on reading.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import socket
import sys
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from pscompy.api.c.guard import (
    Limited,
    Lock,
    NoWaiting,
    condition,
    inside,
    require_waiting,
)
from pscompy.errors import ConnectError, PeerLost, ProtocolError, PscomError, Timeout
from pscompy.world.bootstrap import ends
from pscompy.world.bootstrap.long_values import join, split
from pscompy.world.bootstrap.pmi1_wire import (
    JOB_PREFIX,
    LINE_MAX,
    SUBVERSION,
    VERSION,
    LineBuffer,
    WireError,
    pack,
    parse,
)

if TYPE_CHECKING:
    from pscompy.world.bootstrap.launcher import Follower

logger = logging.getLogger(__name__)

_REPLY_TIMEOUT = 60.0  # seconds to wait for any reply, except those to a barrier and to `leave`
_LEAVE_TIMEOUT = 2.0  # seconds to wait for the answer to `leave`, before the rank leaves anyway

Reply = tuple[str, dict[str, str]]


_clients: weakref.WeakSet[Pmi1] = weakref.WeakSet()


class Pmi1:
    """Implements `Bootstrap` by one rank's connection to a PMI-1 server."""

    # the server in the texts of errors, and the errors' `peer`
    _server, _peer = "the launcher", "launcher"
    keeper: int | None = None  # the other rank whose process is the server, or None

    def __init__(self, descriptor: int, rank: int, size: int, store: str = "") -> None:
        """Use a duplicate of `descriptor`, which stays open for a later bootstrap. `store` names
        the store if rank 0 serves this one instead of a launcher."""
        if store:
            self._server, self._peer = store, "rank 0"
            self.keeper = 0 if rank else None
        self._start(socket.socket(fileno=os.dup(descriptor)), rank, size)

    @classmethod
    def connect(cls, host: str, port: int, pmi_id: int) -> Pmi1:
        """Connect to the server by TCP and ask it for rank and size."""
        try:
            sock = socket.create_connection((host, port), timeout=_REPLY_TIMEOUT)
        except OSError as error:
            raise ConnectError(f"PMI_PORT={host}:{port}: {error}", peer="launcher") from error
        sock.settimeout(None)
        self = cls.__new__(cls)
        self._start(sock, -1, 0, pmi_id)
        return self

    def _start(self, sock: socket.socket, rank: int, size: int, pmi_id: int | None = None) -> None:
        self.rank = rank
        self.size = size
        self._socket = sock
        self._lines = LineBuffer()
        self._state = condition(Lock())
        # held while one question is asked; barriers do without this lock
        self._turn = Lock()
        self._reader: object = None  # stands for the call that reads from the sock
        self._asked = 0  # number of questions that were sent, not counting barriers
        self._answered = 0
        self._reply: Reply = ("", {})
        self._barrier_reply: Reply | None = None
        self._in_barrier = False
        # those that are told of the ends of ranks, and the ends that were reported
        self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()
        self._ends: list[ends.End] = []
        _clients.add(self)
        try:
            self._greet(pmi_id)
        except BaseException:
            sock.close()
            raise

    def _greet(self, pmi_id: int | None) -> None:
        """Introduce this rank, and ask for the launcher's limits. A `pmi_id` asks for rank and size
        first."""
        if pmi_id is not None:
            fields = self._ask("initack", "initack", pmiid=pmi_id)
            self.rank, self.size = self._number(fields, "rank"), self._number(fields, "size")
        self._ask("init", "response_to_init", pmi_version=VERSION, pmi_subversion=SUBVERSION)
        limits = self._ask("get_maxes", "maxes")
        self.job_id = self._word(self._ask("get_my_kvsname", "my_kvsname"), "kvsname")
        self._keylen_max = self._number(limits, "keylen_max") - 1
        frame = len(pack("put", kvsname=self.job_id, key="k", value="v")) + self._keylen_max
        self._vallen_max = min(self._number(limits, "vallen_max") - 1, LINE_MAX - frame)

    @property
    def live(self) -> bool:
        """True under `pscompy run` and for the store; other servers refuse a second value of a key,
        or hide it until the next barrier."""
        return self.job_id.startswith(JOB_PREFIX)

    def put(self, key: str, value: str) -> None:
        for name, text in split(key, value, self._vallen_max):
            self._check_name(name)
            self._ask("put", "put_result", kvsname=self.job_id, key=name, value=text)

    def get(self, key: str, rank: int) -> str:
        """Ignore `rank`, because PMI-1 looks a value up by its key alone."""
        return join(key, self._get)

    def barrier(self, timeout: float | None = None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._state:
            if not self._in_barrier:
                self._in_barrier = True
                self._send(pack("barrier_in"))
        self._await(lambda: self._barrier_reply is not None, deadline)
        with self._state:
            reply, self._barrier_reply = self._barrier_reply, None
            self._in_barrier = False
        fields = reply[1] if reply else {}
        if fields.get("rc", "0") != "0":
            reason = fields.get("msg", f"{self._server} gave no reason").replace("_", " ")
            left = re.fullmatch(r"(rank \d+) has left", reason)
            raise PeerLost(f"barrier of all ranks: {reason}", peer=left[1] if left else None)

    def finalize(self, blames: int | None = None) -> None:
        if _mpi_finalizes():
            return
        self._ask("finalize", "finalize_ack", **self._blame(blames))
        self._socket.close()

    def abort(self, code: int) -> None:
        with self._turn:
            self._send(pack("abort", exitcode=code))

    # ---- the ends of ranks (ends.py) ----

    def leave(self, world: int, failed: bool, blames: int | None = None) -> None:
        if not self.live:
            return
        line = pack("leave", world=world, failed=int(failed), **self._blame(blames))
        with contextlib.suppress(PscomError):  # the launcher may be gone or stopped
            self._exchange(line, _LEAVE_TIMEOUT)

    def follow(self, follower: Follower, world: int) -> int:
        if not self.live:
            return -1
        with self._state:
            self._followers.add(follower)
            for end in self._ends:
                follower.note(end)
            self._send(pack("watch", since=len(self._ends), world=world))
        return os.dup(self._socket.fileno())

    def read_reports(self) -> bool:
        with self._state:
            if self._reader:  # its thread handles all that arrives
                return True
            if self._socket.fileno() < 0:  # this rank has signed off
                return False
            try:
                for line in self._read_lines(time.monotonic()):
                    self._dispatch(line)
            except Timeout:
                return True
            except ProtocolError as error:
                logger.error("ends of ranks are no longer reported: %s", error)
                return False
            except PscomError:  # the launcher is gone
                return False
            finally:
                self._state.notify_all()
        return True

    def _blame(self, rank: int | None) -> dict[str, int]:
        return {"blames": rank} if self.live and rank is not None else {}

    def _gone(self) -> PeerLost:
        """Return the error if the server's end was noticed. That of the store is a rank's end."""
        with self._state:
            keeper, self.keeper = self.keeper, None
            if keeper is not None:
                self._note(ends.of_process(keeper, None, False))
        return PeerLost(f"{self._server} is gone", peer=self._peer)

    def _note(self, end: ends.End) -> None:
        self._ends.append(end)
        for follower in list(self._followers):
            follower.note(end)

    def _take_ends(self, fields: dict[str, str]) -> None:
        try:
            reported = ends.unpack(fields.get("list", ""))
        except WireError as error:
            raise self._broken(f"sent {error}") from error
        # ends may be reported twice, because several requests of `watch` may be in flight
        known = len(self._ends) - (self._number(fields, "until") - len(reported))
        for end in reported[max(0, known) :]:
            self._note(end)
        if self._followers:
            self._send(pack("watch", since=len(self._ends)))

    def _abandon(self) -> None:
        """In a child after a fork: close the sock, so that it ends with the parent, and replace
        locks that threads of the parent may hold."""
        self._socket.close()
        self._state, self._turn = condition(Lock()), Lock()
        self._reading = self._in_barrier = False
        self._followers, self.keeper = weakref.WeakSet(), None

    # ---- requests and replies ----

    def _check_name(self, name: str) -> None:
        if len(name) > self._keylen_max:
            raise ValueError(f"PMI key {name} is longer than {self._keylen_max}")

    def _get(self, name: str) -> str:
        self._check_name(name)
        command, fields = self._exchange(pack("get", kvsname=self.job_id, key=name))
        if command != "get_result":
            raise self._broken(f"answered get with {command}")
        if fields.get("rc", "0") != "0" or fields.get("found", "TRUE") == "FALSE":
            raise KeyError(name)
        return fields.get("value", "")

    def _ask(self, command: str, expected: str, **fields: object) -> dict[str, str]:
        """Send a question; returns its answer. ProtocolError unless it reports success."""
        answer, result = self._exchange(pack(command, **fields))
        if answer != expected or result.get("rc", "0") != "0":
            reason = result.get("msg", "no reason given")
            raise self._broken(f"answered {command} with {answer}: {reason}")
        return result

    def _exchange(self, line: bytes, seconds: float | None = None) -> Reply:
        """Send a line and wait for its reply, `_REPLY_TIMEOUT` seconds at most unless `seconds` are
        given, skipping replies to earlier questions that timed out."""
        seconds = _REPLY_TIMEOUT if seconds is None else seconds
        if inside():  # perhaps this thread is in the middle of another exchange
            require_waiting()
        deadline = time.monotonic() + seconds
        with Limited(self._turn, seconds) as mine:
            if not mine:
                raise self._late()
            with self._state:
                self._send(line)
                self._asked += 1
            self._await(lambda: self._answered == self._asked, deadline)
            return self._reply

    def _send(self, line: bytes) -> None:
        try:
            self._socket.sendall(line)
        except OSError as error:
            raise self._gone() from error

    def _await(self, ready: Callable[[], bool], deadline: float | None) -> None:
        """Return once `ready()` is true; Timeout after the deadline."""
        me = object()
        while not ready():
            try:  # a signal may raise anywhere
                if self._become_reader(me, ready, deadline):
                    with NoWaiting():  # because other threads wait for what this one reads
                        lines = self._read_lines(deadline)
                    with self._state:
                        for line in lines:
                            self._dispatch(line)
            finally:
                if self._reader is me:
                    self._reader = None  # also if a signal ends the wait for the lock
                    with self._state:
                        self._state.notify_all()

    def _become_reader(self, me: object, ready: Callable[[], bool], deadline: float | None) -> bool:
        """Wait until `ready()` is true or no call reads. Returns whether the caller must read from
        the sock now; `_reader` is `me` then."""
        with self._state:
            if not self._state.wait_for(lambda: ready() or not self._reader, _left(deadline)):
                raise self._late()
            if ready():
                return False
            self._reader = me
            return True

    def _read_lines(self, deadline: float | None) -> list[bytes]:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        left = _left(deadline)
        if not poll.poll(None if left is None else left * 1000):
            raise self._late()
        try:
            data = self._socket.recv(65536)
        except OSError as error:
            raise self._gone() from error
        if not data:
            raise self._gone()
        try:
            return self._lines.feed(data)
        except WireError as error:
            raise self._broken(f"sent {error}") from error

    def _dispatch(self, line: bytes) -> None:
        try:
            command, fields = parse(line)
        except WireError as error:
            raise self._broken(f"sent {error}") from error
        if command == "barrier_out":
            self._barrier_reply = command, fields
        elif command == "ends":
            self._take_ends(fields)
        # older servers repeat rank and size by `set`, and do not know `watch`
        elif command not in ("set", "watch_result"):
            self._reply = command, fields
            self._answered += 1

    def _word(self, fields: dict[str, str], name: str) -> str:
        """A field of the server's answer. Raises `ProtocolError` if it is missing or empty."""
        if not fields.get(name):
            raise self._broken(f"answered without {name}")
        return fields[name]

    def _number(self, fields: dict[str, str], name: str) -> int:
        """A field of the server's answer that must be a number. Raises `ProtocolError` if it is
        none."""
        text = self._word(fields, name)
        if not text.isdecimal():
            raise self._broken(f"answered {name}={text}, no number")
        return int(text)

    # ---- errors ----

    def _broken(self, how: str) -> ProtocolError:
        return ProtocolError(f"{self._server} {how}", peer=self._peer)

    def _late(self) -> Timeout:
        return Timeout(f"{self._server} has not answered in time", peer=self._peer)


def _mpi_finalizes() -> bool:
    """Return whether MPI runs in this process, too, and will sign off at the launcher itself. That
    of pscompy does not: it runs on this bootstrap, perhaps while mpi4py is being imported."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not hasattr(mpi, "Get_library_version"):
        return False
    if mpi.Get_library_version().startswith("pscompy "):
        return False
    return bool(mpi.Is_initialized() and not mpi.Is_finalized())


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client._abandon()


os.register_at_fork(after_in_child=_after_fork_in_child)
