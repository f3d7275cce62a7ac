"""Connecting ranks of one World on one node, by datagrams between their control threads.

Each such session has a datagram socket (datagrams.py), so that no address is asked for and no link
is made. Both sides send the same datagrams, whichever of them begins, so that both may begin:

    INVITATION  a nonce, the identity, of which most is the same for all ranks of a node and is
                compared with the receiver's own as a whole, the address of a new lane
    UP          the lane is up; never taken back
    CLOSING     the last message is in flight on the lane
    NO          this side connects over a precon link instead

Both nonces together make the lane's token, which its transport proves, so that replayed datagrams
connect nothing. After NO, or if a candidate's time has passed, both sides connect over a precon
link (ondemand.py), where all transports are negotiated. A descriptor of the peer's process guards
the connection.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from enum import IntEnum
from functools import partial

from pscompy.control import selection
from pscompy.control.candidates import LaneFactory
from pscompy.control.connections import Connections
from pscompy.control.datagrams import NO_NONCE, Datagram, Datagrams, keyed, new_nonce
from pscompy.control.event_loop import READ, ControlThread, Timer
from pscompy.control.handshake.auth import expand
from pscompy.control.handshake.codec import Reader, Writer
from pscompy.control.handshake.frames import (
    ADDRESS_MAX,
    NAME_MAX,
    UID_SIZE,
    VERSION_MAX,
    Identity,
    RefuseCode,
)
from pscompy.control.handshake.states import Phase, PhaseEvent, RemoteProtocolError
from pscompy.control.lane import ROLE_ACCEPTOR, ROLE_CONNECTOR, Lane
from pscompy.control.peer import Record
from pscompy.control.selection import CAP_NODE, Option
from pscompy.errors import PscomError

logger = logging.getLogger(__name__)

_SHARED_MAX = 2048  # bytes of the part of an identity that ranks of a node share


class Kind(IntEnum):
    """The kinds of datagrams."""

    INVITATION = 1
    UP = 2
    CLOSING = 3
    NO = 4


class Introduction:
    """One attempt to connect with a neighbour, and afterwards the way to notify it. It is the
    record's link; see `peer.PeerLink`."""

    def __init__(self, neighbours: Neighbours, record: Record, lane: Lane) -> None:
        self.record = record
        self.lane: Lane | None = lane  # until a connection owns it
        self.nonce = new_nonce()
        self.theirs = NO_NONCE  # the peer's nonce, once it is known
        self.up_here = self.up_there = False
        self.timer: Timer | None = None
        self.guard = -1  # pidfd of the peer's process, if that is visible here
        self._neighbours = neighbours

    def announce_close(self) -> None:
        self._neighbours.send(self, Kind.CLOSING)

    def leave(self) -> None:
        """End the attempt, or forget the connection, which has ended."""
        if self.lane is not None:
            self._neighbours.send(self, Kind.NO)
        self._neighbours.drop(self)

    break_off = leave

    def refuse(self, code: RefuseCode, reason: str) -> None:
        self.leave()


class Neighbours:
    """All introductions of a session. `find` returns the record of the World's peer that has this
    identity, or None; `fall_back` connects over a precon link. All methods but `reaches` are for
    the control thread."""

    def __init__(
        self,
        thread: ControlThread,
        factory: LaneFactory,
        connections: Connections,
        find: Callable[[Identity], Record | None],
        fall_back: Callable[[Record], object],
    ) -> None:
        self._thread = thread
        self._engine = factory.engine
        self._here = factory.here
        self._progress = factory.progress
        self._seconds = factory.candidate_seconds
        self._connections = connections
        self._find = find
        self._fall_back = fall_back
        self._datagrams = Datagrams(
            thread, factory.here.rank, self._on_datagram, self._on_unreachable
        )
        self._key = b""
        self._option: Option | None = None
        self._shared = b""  # the part of this rank's identity that others of the node have, too
        self._identity = b""  # packed
        self._explained: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {}  # by module
        self._introductions: dict[int, Introduction] = {}  # by rank, until the connection ends

    # ---- the socket ----

    def open(self, secret: bytes) -> None:
        """Be reachable for the other ranks on this node, if the best transport to them reaches no
        other node. Called before the thread starts."""
        usable, _ = selection.candidates(self._engine.options, self._here, self._here)
        if self._here.rank < 0 or not usable or not _stays_in_node(usable[0]):
            return
        wire = VERSION_MAX.to_bytes(2, "little")
        self._key = expand(secret, b"pscompy neighbours 2", wire, self._here.job.encode())
        try:
            self._datagrams.open(self._key)
        except OSError as error:
            logger.info("neighbours cannot reach this rank: %s", error)
            return
        self._pack_identity()
        self._option = usable[0]

    def _pack_identity(self) -> None:
        shared, packed = Writer(), Writer()
        self._here._replace(uid=bytes(UID_SIZE), name="", pid=0, rank=-1).pack(shared)
        self._shared = shared.bytes()
        packed.data(self._shared, _SHARED_MAX)
        packed.raw(self._here.uid)
        packed.number(self._here.pid, 4)
        packed.text(self._here.name, NAME_MAX)
        self._identity = packed.bytes()

    def _unpack_identity(self, rank: int, source: Reader) -> Identity:
        same, shared = self._here, source.data(_SHARED_MAX)
        if shared != self._shared:
            same = Identity.unpack(Reader(shared))
        uid, pid, name = source.take(UID_SIZE), source.number(4), source.text(NAME_MAX)
        return same._replace(uid=uid, name=name, pid=pid, rank=rank)

    def close(self) -> None:
        """After the thread has ended, or in the child after a fork: close the descriptors."""
        self._datagrams.close()
        for introduction in self._introductions.values():
            if introduction.guard >= 0:
                os.close(introduction.guard)
        self._introductions.clear()

    @property
    def is_open(self) -> bool:
        """Whether neighbours can reach this session."""
        return self._datagrams.is_open

    def reaches(self, rank: int) -> bool:
        """Return whether this rank has such a socket on this node. For any thread."""
        return self._datagrams.reaches(rank)

    def send(self, introduction: Introduction, kind: Kind, body: bytes = b"") -> None:
        """Send a datagram about this introduction."""
        rank = introduction.record.rank
        self._datagrams.send(rank, kind, introduction.nonce, introduction.theirs, body)

    def _on_unreachable(self, rank: int, reason: str) -> None:
        self._thread.call(self._fail, self._introductions.get(rank), reason, False)

    # ---- connecting ----

    def begin(self, record: Record) -> None:
        """Connect to a rank whose address is not known, because `reaches` has found it."""
        introduction = self._introduce(record)
        if introduction is None:
            self._fall_back(record)

    def _introduce(self, record: Record) -> Introduction | None:
        """Create a lane and send its address. Returns None if there is no lane."""
        assert self._option is not None
        try:
            lane = self._engine.create_lane(self._option)
        except PscomError as error:
            logger.info("%s: %s", record.label, error)
            return None
        try:
            address = lane.address()
        except PscomError as error:
            logger.info("%s: %s", record.label, error)
            lane.destroy()
            return None
        introduction = Introduction(self, record, lane)
        record.link = introduction
        self._introductions[record.rank] = introduction
        self._progress.need(introduction, True)
        if math.isfinite(self._seconds):
            late = "did not answer in time (PSP_CANDIDATE_TIMEOUT)"
            introduction.timer = self._thread.later(self._seconds, self._fail, introduction, late)
        body = self._identity + len(address).to_bytes(2, "little") + address
        self.send(introduction, Kind.INVITATION, body)
        return introduction

    def _connect(self, introduction: Introduction, there: Identity, address: bytes) -> None:
        """Both addresses are known: the lower rank connects, as over a precon link."""
        lane, record = introduction.lane, introduction.record
        assert lane is not None
        record.peer = there
        self._connections.step(record, PhaseEvent.TAKE)
        self._engine.begin_connecting(record.handle)
        first = self._here.name < there.name
        nonces = (introduction.nonce, introduction.theirs)
        token = keyed(self._key, b"lane", b"".join(nonces if first else reversed(nonces)))
        lane.on_change = lambda: self._on_change(introduction)
        try:
            lane.connect(ROLE_CONNECTOR if first else ROLE_ACCEPTOR, token, address)
        except PscomError as error:
            self._fail(introduction, str(error))
        else:
            self._on_change(introduction)

    def _on_change(self, introduction: Introduction) -> None:
        lane = introduction.lane
        if lane is None:
            return
        if lane.failed:
            self._fail(introduction, lane.reason or "no reason given")
        elif lane.up and not introduction.up_here:
            introduction.up_here = True
            self.send(introduction, Kind.UP)
            self._install_if_up(introduction)

    def _install_if_up(self, introduction: Introduction) -> None:
        lane, record = introduction.lane, introduction.record
        if lane is None or not (introduction.up_here and introduction.up_there):
            return
        introduction.lane = None
        self._settle(introduction)
        assert record.peer is not None
        self._connections.install(record, [lane], *self._transports(record.peer))

    def _transports(self, there: Identity) -> tuple[tuple[str, ...], dict[str, str]]:
        """The transports that reach this peer, and why the others do not, for explanations. They
        are the same for all neighbours of one module."""
        known = self._explained.get(there.module)
        if known is None:
            usable, absent = selection.candidates(self._engine.options, self._here, there)
            reasons = {name: f"{reason} (here)" for name, reason in absent.items()}
            known = tuple(option.name for option in usable), reasons
            self._explained[there.module] = known
        return known

    def _fail(self, introduction: Introduction | None, reason: str, tell: bool = True) -> None:
        """End the attempt on both sides, and connect over a precon link. Does nothing if the
        connection is up, or the attempt has ended."""
        if introduction is None or introduction.lane is None:
            return
        logger.info("%s: %s", introduction.record.label, reason)
        if tell:
            self.send(introduction, Kind.NO)
        self.drop(introduction)
        introduction.record.link = None
        self._fall_back(introduction.record)

    def _watch(self, introduction: Introduction, pid: int) -> None:
        """Notice the end of the peer's process. `pid` is 0 if it is not visible here: then the
        transport alone notices it."""
        try:
            introduction.guard = os.pidfd_open(pid) if pid > 0 else -1
        except OSError as error:
            logger.debug("process %d cannot be watched: %s", pid, error)
            return
        if introduction.guard >= 0:
            ended = partial(self._on_process_end, introduction)
            self._thread.register(introduction.guard, READ, ended)

    def _on_process_end(self, introduction: Introduction, _events: int) -> None:
        self._unwatch(introduction)
        self._fail(introduction, "its process has ended", tell=False)
        if introduction.record.link is introduction:
            self._connections.guard_ended(introduction.record, bye=False, outage="")

    def _unwatch(self, introduction: Introduction) -> None:
        guard, introduction.guard = introduction.guard, -1
        if guard >= 0:
            self._thread.unregister(guard)
            os.close(guard)

    def drop(self, introduction: Introduction) -> None:
        """Forget an introduction, and destroy its lane unless a connection owns that."""
        if self._introductions.get(introduction.record.rank) is introduction:
            del self._introductions[introduction.record.rank]
        self._unwatch(introduction)
        self._settle(introduction)
        if introduction.lane is not None:
            introduction.lane.destroy()
            introduction.lane = None

    def _settle(self, introduction: Introduction) -> None:
        """The attempt has ended: nothing more is due for it."""
        self._progress.need(introduction, False)
        if introduction.timer is not None:
            introduction.timer.cancel()

    # ---- receiving ----

    def _on_datagram(self, datagram: Datagram) -> None:
        try:
            if datagram.kind == Kind.INVITATION:
                self._on_invitation(datagram)
            else:
                self._on_notice(datagram)
        except RemoteProtocolError as error:
            logger.warning("rank %d: %s", datagram.rank, error)

    def _on_invitation(self, datagram: Datagram) -> None:
        body = Reader(datagram.body)
        rank, theirs = datagram.rank, datagram.theirs
        there, address = self._unpack_identity(rank, body), body.data(ADDRESS_MAX)
        body.end()
        introduction = self._introductions.get(rank)
        if introduction is None:
            introduction = self._welcome(rank, there)
        if introduction is None or introduction.theirs != NO_NONCE:
            self._datagrams.send(rank, Kind.NO, NO_NONCE, theirs)
            return
        introduction.theirs = theirs
        self._watch(introduction, datagram.pid)
        self._connect(introduction, there, address)

    def _welcome(self, rank: int, there: Identity) -> Introduction | None:
        """Answer a rank that has begun. Returns None if it must connect over a precon link."""
        record = self._find(there)
        if record is None or record.phase is not Phase.LAZY or self._connections.closing:
            return None
        assert self._option is not None
        if selection.why_not(self._option, self._here, there) is not None:
            return None
        return self._introduce(record)

    def _on_notice(self, datagram: Datagram) -> None:
        introduction = self._introductions.get(datagram.rank)
        if introduction is None or introduction.nonce != datagram.own:
            return  # the datagram is about an earlier attempt
        if datagram.kind == Kind.NO:
            self._fail(introduction, "the peer connects over a link instead", tell=False)
        elif introduction.theirs != datagram.theirs:
            return
        elif datagram.kind == Kind.UP:
            introduction.up_there = True
            self._install_if_up(introduction)
        elif datagram.kind == Kind.CLOSING:
            self._connections.peer_closing(introduction.record)


def _stays_in_node(option: Option) -> bool:
    assert option.estimates is not None
    return bool(option.estimates.caps & CAP_NODE) and len(option.rails) == 1
