"""The control plane of a session: its thread, its doors, its connections, and their ends.

Public methods may be called from any thread and return at once, except `close`. Everything else
runs on the control thread, which drives the worker's progress only while lanes are coming up or
going down.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from pscompy.config import logs
from pscompy.config.config import AUTO, Config
from pscompy.control import descriptors, selection
from pscompy.control.addresses import Address, Detour, Place, advertised, listening_socket
from pscompy.control.door import Door
from pscompy.control.event_loop import READ, ControlThread, Timer
from pscompy.control.handshake.frames import Identity, RefuseCode
from pscompy.control.handshake.handshake import Handshake, Side
from pscompy.control.handshake.keys import find_key
from pscompy.control.handshake.states import Phase, PhaseEvent
from pscompy.control.negotiation import Negotiation
from pscompy.control.ondemand import Holder, OnDemand, Policy
from pscompy.control.peer import Record
from pscompy.control.precon import Link, LinkOptions
from pscompy.control.worker import ConnState, Engine, Lane
from pscompy.errors import Closed, ConnectError, PeerLost, PscomError

logger = logging.getLogger(__name__)

PUMP_MAX = 16  # passes before descriptors are looked at again
STOP_SECONDS = 5.0  # for the thread to end
LAST_WORDS = 0.5  # seconds for what a dead peer had sent to come in, if its lane says when it has
LAST_WORDS_PAUSE = 0.01
# What keeps the thread busy besides lanes that come up.
_RETIRING = "retiring"
_HOLDING = "holding"
STUCK_PAUSE = 1.0  # seconds between looks at transports that may be stuck
HOLDING_PAUSE = 0.01  # seconds without progress after which what is held is this thread's business

Deliver = Callable[[Record], object]


class Listener:
    """A listening socket; `deliver` gets every connection that has come up through it."""

    def __init__(self, deliver: Deliver, sock: socket.socket) -> None:
        self.address = ""
        self.detours: tuple[Detour, ...] = ()
        self.deliver = deliver
        self.socket = sock
        self.door: Door | None = None
        self.closed = False


class Control(OnDemand):
    """One per session. `adopt` makes the record of a connection that a peer has begun, and holds
    it; `holder` holds all that are in use.

    `records` are those that have been used and live: in use, or the program has their connection.
    What was only declared costs nothing here.
    """

    def __init__(
        self,
        config: Config,
        engine: Engine,
        here: Identity,
        adopt: Callable[[], Record],
        holder: Holder,
    ) -> None:
        policy = Policy(config["RETRY"], LinkOptions.of(config), config["CANDIDATE_TIMEOUT"])
        super().__init__(ControlThread(f"pscompy {here.name}"), engine, here, policy, holder)
        self.config = config
        self.records: WeakValueDictionary[int, Record] = WeakValueDictionary()
        # By context: what runs the actions of its connections, made at the first of them.
        self.services: dict[int, Callable[[], Any]] = {}
        self._adopt = adopt
        self._listeners: list[Listener] = []
        self._busy: set[object] = set()
        self._passes = 0  # of progress, made here
        self._others_passes: int | None = None  # when last looked at, while something is held
        self._holding_timer: Timer | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._has_key = False
        self._started = False

    # ---- any thread ----

    def set_peers(self, find: Callable[[Identity], Record | None]) -> None:
        """Let `find` return the record of a World's peer, or None if it is no peer. It is called
        on the control thread, for each peer that introduces itself as one of this job."""
        self.find_peer = find

    def set_service(self, context: int, make: Callable[[], Any]) -> None:
        """Register the service that runs the actions of a context; `make` returns it, on the
        first use."""
        self.services[context] = make

    def service(self, context: int) -> Any:
        """Return the service that runs the actions of this context."""
        return self.services[context]()

    def counters(self, record: Record) -> dict[str, int]:
        """Return the counters of a connection and of its transports; all are zero once the session
        is closed."""
        return self.engine.connection_counters(record.handle)

    def end_reason(self, record: Record) -> str:
        """Return the reason that the transport gave for the end of a connection, or ""."""
        return self.engine.connection_reason(record.handle)

    def begin_open(self, record: Record, connection: object) -> None:
        """Connect in the background; the core queues what is sent meanwhile. The connection is
        held as long as it is in use. Never raises for reasons of the network: those end what was
        queued. `AuthError`: there is no usable key."""
        self._start()
        self.records[record.id] = record
        if record.address is None and record.resolve is not None:
            try:
                record.address = record.resolve()
            except PscomError as error:
                logger.warning("the address of %s is not known: %s", record.label, error)
        self.engine.begin_connecting(record.handle)
        self._thread.call(self._begin, record, connection)

    def open(
        self, record: Record, connection: object, told: Callable[[PscomError | None], object]
    ) -> None:
        """Connect, and call `told` on the control thread: None once it is up, else why not."""
        self.begin_open(record, connection)
        self._thread.call(self._tell_later, record, told)

    def close_connection(self, record: Record) -> None:
        """In order, as `Connection.close` says; what was only declared can be used no more."""
        self.records[record.id] = record
        self.engine.close_connection(record.handle)

    def listen(self, host: str | None, port: int, deliver: Deliver) -> Listener:
        """Take connections in. `ConnectError`: the address cannot be bound."""
        self._start()
        try:
            sock = listening_socket(host, port)
        except (OSError, UnicodeError, OverflowError) as error:
            reason = descriptors.why(error) if isinstance(error, OSError) else error
            raise ConnectError(f"cannot listen at {host or '*'}:{port}: {reason}") from error
        try:
            hosts = self._hosts(sock)
        except PscomError:
            sock.close()
            raise
        places = tuple(Place(where, sock.getsockname()[1]) for where in hosts)
        listener = Listener(deliver, sock)
        listener.detours = tuple(
            Detour(name, relay.listen(partial(self._thread.call, self._on_detour, listener)))
            for name, relay in self.engine.relays.items()
        )
        listener.address = str(Address(places, self.here.name, listener.detours))
        self._thread.call(self._open_door, listener)
        return listener

    def _hosts(self, sock: socket.socket) -> list[str]:
        bound = str(sock.getsockname()[0])
        if bound not in ("::", "0.0.0.0"):
            return [bound]
        return advertised(self.config["NETWORK"], v6=bound == "::")

    def stop_listening(self, listener: Listener) -> None:
        """Take no more connections in; those that are up stay."""
        self._thread.call(self._close_door, listener)

    def close(self, timeout: float | None) -> bool:
        """Close all connections in order; False: some have not ended in time (seconds)."""
        with self._lock:
            self.closing = True
            if not self._started:
                return True
        self._thread.call(self._begin_closing)
        return self._ended.wait(timeout)

    def stop(self) -> bool:
        """Break off what is left and end the thread; False: it is stuck in a call."""
        if not self._started:
            self._thread.abandon()
            return True
        self._thread.call(self._break_off_all)
        return self._thread.stop(STOP_SECONDS)

    def forked(self) -> None:
        """In the child after a fork: let go of descriptors, touch nothing that is shared."""
        for listener in self._listeners:
            if listener.door is not None:
                listener.door.forget()
        for negotiation in self._negotiations:
            negotiation.link.forget()
        for record in self._in_use:
            if record.attempt is not None and record.attempt.dialer is not None:
                record.attempt.dialer.forget()
        self._thread.abandon()

    def prepare_memory(self) -> None:
        """Before remote keys are made: they are authenticated by what the job's key gives.
        `AuthError`: there is no usable key."""
        with self._lock:
            self._find_key()

    def _find_key(self) -> None:
        if not self._has_key:
            self._key = find_key(self.config)
            self._has_key = True
            self.engine.set_secret(self._key.for_memory)

    def _start(self) -> None:
        with self._lock:
            if self.closing:
                raise Closed("the session is closed")
            if self._started:
                return
            self._find_key()
            self._started = True
            self._thread.set_pump(self._pump)
            self._thread.register(self.engine.control_fd, READ, self._on_control)
            log = self.engine.log_fd
            if log is not None:
                self._thread.register(log, READ, lambda _: self.engine.read_log())
            self._thread.call(self._look_for_stuck)
            self._thread.start()

    def _look_for_stuck(self) -> None:
        if self.engine.look_for_stuck():
            self._thread.later(STUCK_PAUSE, self._look_for_stuck)

    # ---- progress while lanes come up or go down, or bytes stay behind ----

    def busy(self, what: object, busy: bool) -> None:
        before = bool(self._busy)
        (self._busy.add if busy else self._busy.discard)(what)
        if bool(self._busy) == before:
            return
        if busy:
            self._thread.register(self.engine.fabric_fd, READ, lambda _: None)
        else:
            self._thread.unregister(self.engine.fabric_fd)

    def _pump(self) -> bool:
        if not self._busy:
            return True
        for _ in range(PUMP_MAX):
            self._passes += 1
            self.engine.progress()
            if self.engine.arm_fabric():
                self._look_after_the_rest()
                return True
        return False

    def _look_after_the_rest(self) -> None:
        """Lanes that end are seen to their end, and what a transport holds leaves, though the
        program may not call for long."""
        self.busy(_RETIRING, self.engine.retiring)
        if self._holding_timer is None:
            self._look_after_holding()

    def _look_after_holding(self) -> None:
        """A program that calls moves what is held itself. If it has made no progress for a while,
        this thread does, until it calls again."""
        passes = self.engine.holding()
        others = None if passes is None else (passes - self._passes) % (1 << 32)
        left_alone = others is not None and others == self._others_passes
        self._others_passes = others
        self._holding_timer = None
        self.busy(_HOLDING, left_alone)
        if others is not None and not left_alone:
            self._holding_timer = self._thread.later(HOLDING_PAUSE, self._look_after_holding)

    def _on_control(self, _events: int) -> None:
        changed = self.engine.control_events()
        for lane_id in changed.lanes:
            lane = self.engine.lanes.get(lane_id)
            if lane is not None:
                lane.on_change()
        for conn_id in changed.connections:
            record = self.records.get(conn_id)
            if record is not None:
                self._on_connection(record)
        self._look_after_the_rest()

    # ---- links ----

    def _open_door(self, listener: Listener) -> None:
        if self.closing:
            listener.socket.close()
            return
        self._listeners.append(listener)
        listener.door = Door(
            self._thread,
            listener.socket,
            self._policy.link,
            lambda sock: self._enter(listener, sock),
        )

    def _on_detour(self, listener: Listener, sock: socket.socket) -> None:
        """A relay brings a caller."""
        if listener.door is None:
            sock.close()
        else:
            listener.door.admit(sock)

    def _close_door(self, listener: Listener) -> None:
        listener.closed = True
        for detour in listener.detours:
            self.engine.relays[detour.relay].stop(detour.place)
        if listener.door is not None:
            listener.door.close()
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _enter(self, listener: Listener, sock: socket.socket) -> Link:
        machine = Handshake(Side.LISTENER, self._key, self.here)
        negotiation = Negotiation(self)
        negotiation.listener = listener
        return self.track(negotiation, sock, machine)

    # ---- connections ----

    def _begin(self, record: Record, connection: object) -> None:
        if record.phase is Phase.LAZY:
            self._holder.hold(connection)
            self.begin(record)

    def _step(self, record: Record, event: PhaseEvent) -> None:
        self.records[record.id] = record
        super()._step(record, event)
        self._check_ended()

    def wishes(self, option: selection.Option) -> selection.Wishes:
        threshold = f"{option.name.upper()}_RENDEZVOUS"
        name = threshold if threshold in self.config else "RENDEZVOUS"
        wanted = self.config[name]
        return selection.Wishes(AUTO if wanted is None else wanted, self.config["RNDV_SCHEME"])

    def established(self, negotiation: Negotiation) -> None:
        record = negotiation.record
        incoming = record is None
        if record is None:
            record = negotiation.record = self._adopt()
            self._step(record, PhaseEvent.TAKE)
        self.install(record, negotiation)
        record.tell(None)
        if self.closing:  # the peer was a moment faster
            self.engine.close_connection(record.handle)
        elif incoming and negotiation.listener is not None:
            negotiation.listener.deliver(record)

    def _install(
        self, record: Record, lanes: list[Lane], offered: tuple[str, ...], reasons: dict[str, str]
    ) -> None:
        super()._install(record, lanes, offered, reasons)
        if self.config["DEBUG_CONTYPE"]:
            logs.notice("connected to %s over %s", record.label, record.transport)

    def _tell_later(self, record: Record, told: Callable[[PscomError | None], object]) -> None:
        """After `begin`: it may be up, or have failed, already."""
        if record.phase is Phase.UP:
            told(None)
        elif record.phase is Phase.CLOSED:
            told(record.error or Closed(f"the connection to {record.label} is closed"))
        elif record.phase is Phase.LAZY:
            told(record.error or ConnectError(f"no connection to {record.label}"))
        else:
            record.waiting += (told,)

    def _on_connection(self, record: Record) -> None:
        state = self.engine.connection_state(record.handle)
        if state == ConnState.CLOSING:
            self.busy(record, True)
            if record.link is not None:
                record.link.nudge()
        elif state in (ConnState.CLOSED, ConnState.FAILED):
            self._end(record, lost=state == ConnState.FAILED)

    def _end(self, record: Record, lost: bool) -> None:
        """The connection is over: tell the peer how, and forget it."""
        if record.phase is Phase.CLOSED:
            return
        was_up, link = record.phase is Phase.UP, record.link
        if lost and record.error is None:
            record.error = PeerLost(f"the connection to {record.label} is lost", peer=record.label)
        self._cancel(record)
        self._leave(link, was_up, lost)
        self.busy(record, False)
        self._step(record, PhaseEvent.ENDED)
        record.tell(record.error or Closed(f"the connection to {record.label} is closed"))

    def _leave(self, link: Negotiation | None, was_up: bool, lost: bool) -> None:
        if link is None:
            return
        if lost:
            link.break_off()
        elif was_up:
            link.leave()
        else:
            link.refuse(RefuseCode.CLOSED, f"{self.here.name} has closed this connection")

    def peer_closing(self, negotiation: Negotiation) -> None:
        """Its last message is on its way in; without us it would wait for our next call."""
        if negotiation.record is not None and negotiation.record.phase is Phase.UP:
            self.busy(negotiation.record, True)

    def guard_ended(self, negotiation: Negotiation, bye: bool) -> None:
        record = negotiation.record
        if record is None or record.phase is not Phase.UP:
            return
        if not bye and not self.config["GUARD"]:
            return
        record.error = PeerLost(_lost(record.label, negotiation.link.outage), peer=record.label)
        self._last_words(record, time.monotonic() + LAST_WORDS)

    def _last_words(self, record: Record, until: float) -> None:
        """What the peer sent before its end may still be on its way."""
        if record.phase is not Phase.UP:
            return
        if not self.engine.peer_ended(record.handle, last=time.monotonic() >= until):
            self._thread.later(LAST_WORDS_PAUSE, self._last_words, record, until)

    # ---- the end ----

    def _begin_closing(self) -> None:
        for listener in list(self._listeners):
            self._close_door(listener)
        for ref in self.records.valuerefs():
            record = ref()
            if record is not None:
                self.engine.close_connection(record.handle)
        self._check_ended()

    def _check_ended(self) -> None:
        if self.closing and not self._in_use:
            self._ended.set()

    def _break_off_all(self) -> None:
        for record in list(self._in_use):
            self.engine.fail(record.handle, Engine.ERR_CLOSED)
        for negotiation in list(self._negotiations):
            if not negotiation.link.closed:
                negotiation.break_off()


def _lost(label: str, outage: str) -> str:
    if not outage:
        return f"{label} has ended"
    return f"{label} does not answer, or the network to it is down: {outage} (PSP_GUARD_TIMEOUT)"
