"""The control plane of a session: the thread, the parts that run on it, and the calls into them.

    listening   accepts precons of peers        ondemand     decides which precon is used
    connections installs and ends lanes         progress     drives transports meanwhile

Public methods may be called from any thread and return at once, except `close` and `stop`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pscompy.api.c.guard import Lock, may_wait, when_outside
from pscompy.config.config import Config
from pscompy.control.conn import Conn
from pscompy.control.connections import Connections, Holder
from pscompy.control.descriptors import why
from pscompy.control.ended_ranks import LOOK_PAUSE
from pscompy.control.event_loop import READ, ControlThread
from pscompy.control.factory import LaneFactory
from pscompy.control.handshake.identity import Identity
from pscompy.control.handshake.keys import Key, find_key
from pscompy.control.listening import Deliver, Listener, Listening
from pscompy.control.node_connect import NodeConnects
from pscompy.control.peer import FindPeer, OnSettled, Record
from pscompy.control.phases import Phase
from pscompy.control.precon_options import PreconOptions
from pscompy.control.progress import Progress
from pscompy.control.sibling import SiblingThread
from pscompy.control.worker import Worker
from pscompy.errors import Closed, ConnectError, PscomError

if TYPE_CHECKING:
    import socket

    from pscompy.control.explain import Explanation
    from pscompy.control.ondemand import OnDemand
    from pscompy.control.precon import Precon

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 1.0  # seconds that closing waits before it says what for
STOP_SECONDS = 5.0  # seconds to wait for the end of the thread
NOTE_SECONDS = 1.0  # seconds that `records` waits for the control thread, which may be stuck


class Control:
    """The control plane of one worker. `adopt` makes the record of a connection that a peer has
    begun, and holds it; `holder` holds all connections that are in use. `find_peer` returns the
    record of a rank of the job, None if there is no such rank; it is called on the control thread.
    `first` is the control plane of the session's first worker, whose thread, key and listeners
    serve all workers of the session."""

    def __init__(
        self,
        config: Config,
        worker: Worker,
        here: Identity,
        adopt: Callable[[], Record],
        holder: Holder,
        find_peer: FindPeer,
        first: Control | None = None,
    ) -> None:
        if first is not None:
            first = first._first or first
        self.config = config
        self.worker = worker
        self.here = here
        self._lock = Lock()
        self._key: Key | None = None  # the key of the job; found at the first use
        self._started = False
        # text for `explain` that names the communicators that use the worker
        self.users = "all communicators without their own"
        self._first: Control | None = first
        self._thread: ControlThread = (
            ControlThread(f"pscompy {here.name}") if first is None else SiblingThread(first._thread)
        )
        self._progress = Progress(self._thread, worker)
        self._options = PreconOptions.of(config)
        self._factory = LaneFactory(worker, here, self._progress, config["CANDIDATE_TIMEOUT"])
        self._connections = Connections(self._thread, self._factory, config, holder, adopt)
        self._find_peer = find_peer
        self._node_connects = NodeConnects(
            *(self._thread, self._factory, self._connections, find_peer),
            self._fall_back,
        )
        self._on_demand: OnDemand | None = None  # made at the first precon, by `_precons`
        self._others: dict[str, Control] = {}  # control planes of the other workers, by job
        # descriptor that is readable while the launcher's reports of ended ranks are to be read
        self._reports = -1
        self._n_others = 0  # number of other ranks of the job
        self._ended: dict[int, PscomError] = {}  # ranks that were reported, with the reasons
        self._progress.on_held = self._node_connects.answer_callers
        self._listening = Listening(
            self._thread, worker.transports.relays, self._options, config["NETWORK"], self._accept
        )

    # ---- connections ----

    def records(self) -> list[Record]:
        """Return the records of the connections that were used."""
        if self._started and not self._connections.closing and may_wait():
            self._thread.run(self._note_calls, seconds=NOTE_SECONDS)
        return self._connections.records()

    def explain(self, record: Record) -> Explanation:
        """Explain a connection as `Connection.explain` says."""
        return self._connections.tuning.explain(record, self.users)

    def begin_open(self, record: Record, connection: object) -> None:
        """Connect in the background; the core queues what is sent meanwhile. The connection is
        held as long as it is in use. A failure of the network fails the queued messages, and raises
        nothing here. Raises `AuthError` if there is no usable key, unless the thread may not wait:
        then the queued messages fail."""
        if may_wait():
            self._start()
        elif self._connections.closing:
            raise Closed("the session is closed")
        if record.phase is Phase.LAZY:
            self._connections.retain(connection)
        # If possible, a rank on this node is called (connected without a precon); then _note_calls
        # registers the record.
        unknown = record.resolve is not None and record.address is None
        if unknown and self._node_connects.call(record):
            return
        if unknown and may_wait():
            record.find_address()
        self._connections.register(record)
        record.conn.begin_connecting()
        if may_wait():
            self._thread.call(self._begin_link, record)
        else:
            when_outside(self._begin_late, record)

    def _begin_late(self, record: Record) -> None:
        """Go on to connect, after `begin_open` in a thread that must not wait."""
        try:
            self._start()
        except PscomError as error:
            record.error = error
            record.conn.fail(Conn.ERR_CONNECT)
        else:
            self._thread.call(self._begin_link, record)

    def expect(self, record: Record) -> None:
        """Let the core open this connection by itself from now on (`psc_api_t.conn_open`): it has
        this control plane connect. Raises `AuthError` if there is no usable key."""
        if may_wait():
            self._start()
        self._connections.register(record)

    def open(self, record: Record, connection: object, on_settled: OnSettled) -> None:
        """Connect, and call `on_settled` on the control thread, if there is one: with None once the
        connection is up, with the reason if it fails."""
        self.begin_open(record, connection)
        when_outside(self._when_settled, record, on_settled)

    def _when_settled(self, record: Record, on_settled: OnSettled) -> None:
        if not self._started:  # `_begin_late` has failed
            on_settled(record.error)
            return
        self._thread.call(self._note_calls)
        self._thread.call(self._connections.when_settled, record, on_settled)

    def close_connection(self, record: Record) -> None:
        """Close the connection as `Connection.close` says, also if it was never used."""
        self._connections.close(record)

    def listen(self, host: str | None, port: int, deliver: Deliver) -> Listener:
        """Accept connections; `deliver` gets each that has come up, on the control thread.

        Raises `ConnectError` if the address cannot be bound, `AuthError` if there is no usable key.
        """
        self._start()
        return self._listening.open(self.here.name, host, port, deliver)

    def stop_listening(self, listener: Listener) -> None:
        """Accept no more connections; those that are up stay."""
        self._listening.close(listener)

    def prepare_memory(self) -> None:
        """Make the key with which remote keys of memory are authenticated.

        Raises `AuthError` if there is no usable key.
        """
        with self._lock:
            self._find_key()

    # ---- ranks that have ended ----

    def watch_reports(self, descriptor: int, read: Callable[[], bool], others: int) -> None:
        """Call `read` on the control thread whenever the descriptor is readable, until `read`
        returns False. Owns the descriptor. `others` is the number of other ranks, which are
        reported as ended by `rank_ended`."""
        self._reports, self._n_others = descriptor, others

        def on_ready(_: int) -> None:
            if not read():
                self._thread.unregister(descriptor)

        self._thread.call(self._thread.register, descriptor, READ, on_ready)

    @property
    def is_last(self) -> bool:
        """Whether all other ranks have ended or have left their World."""
        ended = (self._first or self)._ended
        return bool(ended) and len(ended) == (self._first or self)._n_others

    def rank_ended(self, rank: int, reason: PscomError) -> None:
        """End the connections to a rank that has ended or has left its World, by this worker and by
        those beside it; see ended_ranks.py. Called on any thread, also on one that holds a
        Lock."""
        self._thread.call(self._on_rank_ended, rank, reason)

    # ---- start and end ----

    def close(self, timeout: float) -> bool:
        """Close all connections and wait for their ends. Returns False if some have not ended
        after `timeout` seconds."""
        with self._lock:
            all_ended = self._connections.begin_closing()
            if not self._started:
                return True
        self._thread.call(self._begin_closing)
        patience = min(CLOSE_SECONDS, timeout)
        if all_ended.wait(patience) or timeout <= patience:
            return all_ended.is_set()
        self._connections.log_waits(timeout)
        return all_ended.wait(timeout - patience)

    def stop(self) -> bool:
        """Fail the connections that are left, and end the thread. Returns False if the thread is
        stuck in a call."""
        if not self._started:
            self._thread.abandon()
            return True
        if self._first is not None:
            self._first._others.pop(self.here.job, None)
        self._thread.call(self._abort)
        # `_abort` makes the core report the end of each connection; handle these reports before the
        # thread stops
        self._thread.call(self._on_core_events, READ)
        stopped = self._thread.stop(STOP_SECONDS)
        if stopped:
            self._node_connects.close()
            self._close_reports()
        return stopped

    def _close_reports(self) -> None:
        if self._reports >= 0:
            os.close(self._reports)
            self._reports = -1

    def forked(self) -> None:
        """In the child after a fork: close descriptors, and change nothing that is shared."""
        self._listening.forget()
        if self._on_demand is not None:
            self._on_demand.forget()
        self._node_connects.close()
        self._close_reports()
        self._connections.forget()
        self._thread.abandon()

    def _find_key(self) -> Key:
        if self._key is None:
            self._key = find_key(self.config) if self._first is None else self._first._find_key()
            self.worker.set_secret(self._key.for_memory)
        return self._key

    def _start(self) -> None:
        """Start the thread, at the first use of the network."""
        with self._lock:
            if self._connections.closing:
                raise Closed("the session is closed")
            if self._started:
                return
            key = self._find_key()
            self._started = True
            self._thread.start(partial(self._begin, key))

    def start_beside(self, users: str) -> None:
        """Let peers connect to this worker, which is not the session's first one."""
        assert self._first is not None
        self.users = users
        self._first._start()
        self._start()
        self._first._others[self.here.job] = self
        for rank, reason in self._first._ended.copy().items():
            self._thread.call(self._end_rank, rank, reason)

    def _begin(self, key: Key) -> None:
        self._node_connects.open(key.secret)
        self._progress.start()
        self._thread.register(self.worker.control_fd, READ, self._on_core_events)
        log = self.worker.log
        if log is not None:
            self._thread.register(log.fd, READ, lambda _: log.read())

    def drive(self) -> None:
        """Have the control thread make progress from now on, because no other thread does."""
        self._thread.call(self._progress.need, "no other thread", True)

    def catch_up(self) -> None:
        """Wait until the control thread has noted which ranks on this node are connected. Does
        nothing in a thread that may not wait."""
        if may_wait():
            self._thread.run(self._note_calls)

    # ---- on the control thread ----

    def _precons(self) -> OnDemand:
        """Return the part that makes precons and negotiates on them. The first precon imports it:
        ranks on one node need no precons."""
        if self._on_demand is None:
            with self._thread.spare.lent():  # an import opens files
                from pscompy.control.dialing import Policy
                from pscompy.control.ondemand import OnDemand
            policy = Policy(self.config["RETRY"], self._options)
            self._on_demand = OnDemand(
                *(self._thread, self._factory, self._connections, policy),
                *(self._find_key(), self._find_peer, self._precons_of),
            )
        return self._on_demand

    def _begin_link(self, record: Record) -> None:
        """Connect by a precon. Finds the peer's address first if `begin_open` could not wait for
        the launcher."""
        connect = partial(self._by_precon, record, lambda precons: precons.begin(record))
        record.when_address_is_known(self._thread, connect)

    def _by_precon(self, record: Record, connect: Callable[[OnDemand], object]) -> None:
        """Connect by a precon. If the part that makes precons cannot be imported, give up."""
        try:
            precons = self._precons()
        except (ImportError, OSError) as error:
            reason = why(error) if isinstance(error, OSError) else str(error)
            if record.phase in (Phase.LAZY, Phase.NEGOTIATING):
                failed = ConnectError(f"no precon can be made: {reason}", peer=record.label)
                self._connections.give_up(record, failed)
        else:
            connect(precons)

    def _fall_back(self, record: Record) -> None:
        """Connect by a precon, because a call has failed, unless the rank has ended."""
        if not self._connections.ended_ranks.lose(record):
            self._by_precon(record, lambda precons: precons.fall_back(record))

    def _on_rank_ended(self, rank: int, reason: PscomError) -> None:
        if rank in self._ended:  # a rank that has left its World is reported again when it ends
            return
        self._ended[rank] = reason
        for control in (self, *self._others.values()):
            control._end_rank(rank, reason)
        if self.is_last:
            self._end_hopeless()

    def _end_hopeless(self) -> None:
        """End receives from any source, now and then, because this rank is the last one."""
        if self._connections.closing:
            return
        for control in (self, *self._others.values()):
            control._connections.ended_ranks.end_hopeless()
        self._thread.later(LOOK_PAUSE, self._end_hopeless)

    def _end_rank(self, rank: int, reason: PscomError) -> None:
        if self._connections.closing:
            return
        self._note_calls()
        with suppress(Closed):  # the session has begun to close
            record = self._find_peer(self.here._replace(rank=rank))
            if record is not None:
                self._connections.register(record)
                calls = self._node_connects.calls(record)
                self._connections.ended_ranks.add(record, reason, calls)

    def _precons_of(self, job: str) -> OnDemand | None:
        other = self._others.get(job)
        return None if other is None else other._precons()

    def _accept(self, listener: Listener, sock: socket.socket) -> Precon:
        return self._precons().accept(listener, sock)

    def _on_core_events(self, _events: int) -> None:
        changed = self.worker.control_events()
        for lane_id in changed.lanes:
            lane = self.worker.lanes.get(lane_id)
            if lane is not None:
                lane.on_change()
        if changed.calls or changed.connections:
            self._node_connects.note_calls(changed.calls)
        for conn_id in changed.connections:
            self._on_connection(conn_id)
        self._progress.check_background()

    def _on_connection(self, conn_id: int) -> None:
        record = self._connections.begun_by_core(conn_id)
        if record is None:
            self._connections.on_core_event(conn_id)
        else:
            self._begin_link(record)

    def _note_calls(self) -> None:
        """Note all calls so far (ranks of this node connect by calls, without a precon; see
        node_connect.py): the core reports calls that have failed as events, and the others as new
        calls."""
        self._on_core_events(READ)
        self._node_connects.note_calls()

    def _begin_closing(self) -> None:
        self._node_connects.end_calls()
        self._listening.close_all()
        self._connections.close_all()

    def _abort(self) -> None:
        self._connections.abort_all()
        if self._on_demand is not None:
            self._on_demand.break_off_all()
