"""The pump: the thread that runs one transport written in Python.

It waits for the bridge's descriptor and for the descriptors that the transport watches, and
handles their events. No other thread calls the transport, so a transport needs no lock; and if
one of its calls blocks, only this thread is blocked.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pscompy.errors import describe
from pscompy.transport.python.base import Link, PythonTransport
from pscompy.transport.python.channel import Channel, Stage
from pscompy.transport.python.native import native
from pscompy.transport.python.proof import Accepting, Connecting, read_hello
from pscompy.transport.python.watches import READ, WRITE, Watch, Watches

logger = logging.getLogger("pscompy.plugin")  # the logger of plug-ins

CALLERS_MAX = 64  # callers whose proof has not begun
JOIN_SECONDS = 2.0
STUCK_SECONDS = 0.5  # a call that takes longer is reported as blocking
OURS = __name__.rpartition(".")[0]  # this package, whose functions call the transport


class Pump:
    """Opens the transport within `seconds`, and runs it until `close`.

    An exception of the transport's `open` passes through, and no resource stays allocated. If
    `open` takes too long, `TimeoutError` is raised; the thread then waits for `open` to return,
    and closes the transport.
    """

    def __init__(
        self, name: str, transport: PythonTransport, settings: Mapping[str, Any], seconds: float
    ) -> None:
        module = native()
        self._ffi, self._lib = module.ffi, module.lib
        self._name = name
        self._transport = transport
        self._watches = Watches()
        self._channels: dict[int, Channel] = {}
        self._callers: OrderedDict[Channel, None] = OrderedDict()
        self._expected: dict[int, tuple[bytes, int]] = {}  # acceptors: token, the peer's number
        self._broken = ""  # why the transport has failed
        self._command = self._ffi.new("bridge_command_t *")
        self._since: float | None = None  # start time of the current round of `_serve`
        self._stuck_logged = False  # a blocking call was logged
        self._opening = threading.Lock()
        self._opened = threading.Event()
        self._abandoned = False  # the time-out of `open` has expired
        self._refusal: BaseException | None = None  # exception of `open`
        transport._caller = self
        self._thread = threading.Thread(
            target=self._run, args=(settings,), name=f"pscompy-{name}", daemon=True
        )
        self._thread.start()
        self._await_open(seconds)

    def _await_open(self, seconds: float) -> None:
        """Raises `TimeoutError`, or the exception of `open`."""
        try:
            self._opened.wait(None if math.isinf(seconds) else seconds)
        finally:
            with self._opening:
                self._abandoned = not self._opened.is_set()
        if self._abandoned:
            why = self.stuck() or "its open() has not returned"
            raise TimeoutError(f"did not open in {seconds:g} s (PSP_CANDIDATE_TIMEOUT): {why}")
        if self._refusal is not None:
            self._thread.join()
            raise self._refusal

    def _open(self, settings: Mapping[str, Any]) -> bool:
        """Open the transport, on the pump's thread. Returns False if it cannot run."""
        try:
            self._since = time.monotonic()
            self._bridge = self._create(self._transport.open(settings))
            self._watches.add_command_fd(self._lib.bridge_fd(self._bridge))
        except BaseException as refusal:
            self._refusal = refusal
        with self._opening:
            self._opened.set()
        if self._refusal is None and not self._abandoned:
            return True
        if self._refusal is None:  # too late
            self._shielded(self._transport.close)
            self._lib.bridge_release(self._bridge)
        self._watches.close()
        return False

    def _create(self, address: bytes) -> Any:
        transport = self._transport
        attr = self._ffi.new("bridge_attr_t *")
        attr.latency_ns = transport.latency * 1e9
        attr.bandwidth = transport.bandwidth
        attr.max_frame = transport.max_frame
        attr.queue = transport.queue
        attr.node_only = transport.node_only
        bridge = self._lib.bridge_create(self._name.encode(), attr, address, len(address))
        if not bridge:
            transport.close()
            raise ValueError(
                f"no bridge could be made: latency {transport.latency}, bandwidth"
                f" {transport.bandwidth}, max_frame {transport.max_frame}, queue"
                f" {transport.queue}, {len(address)} bytes of address"
            )
        return bridge

    # ---- called by the session ----

    @property
    def ops(self) -> int:
        """The address of the psc_transport_ops_t, valid until `close`."""
        return int(self._lib.bridge_ops(self._bridge))

    @property
    def handle(self) -> int:
        """The bridge's address, by which the `open` of the ops finds it."""
        return int(self._ffi.cast("uintptr_t", self._bridge))

    def close(self) -> None:
        """End the thread. If a call of the transport blocks it for JOIN_SECONDS, the thread is
        abandoned, with its half of the bridge."""
        self._lib.bridge_end(self._bridge)
        self._thread.join(JOIN_SECONDS)
        if not self._thread.is_alive():
            self._lib.bridge_release(self._bridge)
        elif not self.stuck():
            logger.warning("the thread of the transport %s does not end", self._name)

    def stuck(self) -> str:
        """Returns which call of the transport blocks, and where, or an empty text. May be called
        on any thread; a blocking call is logged once."""
        since = self._since
        seconds = 0.0 if since is None else time.monotonic() - since
        if seconds < STUCK_SECONDS:
            return ""
        call = self._blocking_call()
        why = f"its {call} has not returned for {seconds:.1f} s, and no call may block"
        if not self._stuck_logged:
            self._stuck_logged = True
            logger.warning("the transport %s blocks: %s", self._name, why)
        return why

    def _blocking_call(self) -> str:
        """Returns the transport's function that the thread is executing."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        found = "call"
        while frame is not None and not frame.f_globals.get("__name__", "").startswith(OURS):
            code = frame.f_code
            if not code.co_name.startswith("<"):  # not a lambda
                found = f"{code.co_name}() ({code.co_filename}, line {frame.f_lineno})"
            frame = frame.f_back
        return found

    # ---- the thread ----

    def _run(self, settings: Mapping[str, Any]) -> None:
        if not self._open(settings):
            return
        try:
            while self._serve():
                pass
        except Exception as error:
            self._break(error)
            while self._serve():
                pass
        finally:
            self._end()

    def _serve(self) -> bool:
        """Wait once and handle the events. Returns False if the bridge has ended."""
        more = True
        self._since = None
        for watch, events in self._watches.wait():
            self._since = self._since or time.monotonic()
            if watch is None:
                more = self._obey()
            else:
                self._ready(watch, events)
        return more

    def _end(self) -> None:
        for channel in [*self._channels.values(), *self._callers]:
            self._lose(channel, "the session is closed")
        if not self._broken:
            self._shielded(self._transport.close)
        self._watches.close()

    def _break(self, error: Exception) -> None:
        """Handle a failure of the whole transport: all links fail, and so do later ones."""
        self._broken = f"the transport {self._name} has failed: {describe(error)}"
        logger.error("%s", self._broken, exc_info=error)
        for number in list(self._expected):
            self._fail(number, self._lib.PSC_ERR_CONNECT, self._broken)
        for channel in [*self._channels.values(), *self._callers]:
            self._lose(channel, self._broken)
        self._watches.clear()
        self._shielded(self._transport.close)

    def _ready(self, watch: Watch, events: int) -> None:
        channel = watch.channel
        if channel is None:
            with suppress(BlockingIOError, ConnectionError):  # the caller has hung up
                watch.read()
            return
        if events & WRITE:
            self._flush(channel)
        if events & READ and channel.stage is not Stage.ENDED:
            with self._about(channel), suppress(BlockingIOError):
                watch.read()

    def _shielded(self, call: Callable[[], object]) -> None:
        """Make a call whose exceptions are only logged."""
        try:
            call()
        except Exception:
            logger.exception("%s failed while it was ending", self._name)

    @contextmanager
    def _about(self, channel: Channel) -> Iterator[None]:
        """An exception inside this context ends the link, and nothing else."""
        try:
            yield
        except OSError as error:
            self._lose(channel, str(error) or type(error).__name__)
        except Exception as error:
            logger.exception("%s: a link ends because of an error in the transport", self._name)
            self._lose(channel, describe(error))

    # ---- commands of the bridge ----

    def _obey(self) -> bool:
        """Execute all queued commands. Returns False after the last command, END."""
        lib, command = self._lib, self._command
        while lib.bridge_take(self._bridge, command):
            if command.kind == lib.BRIDGE_END:
                return False
            if command.kind == lib.BRIDGE_CONNECT:
                self._connect(command)
            elif command.kind == lib.BRIDGE_FRAME:
                self._send(command.ep, bytes(self._ffi.buffer(command.data, command.len)))
            elif command.kind == lib.BRIDGE_RESUME:
                self._resume(command.ep)
            else:
                self._close(command.ep)
        return True

    def _connect(self, command: Any) -> None:
        number = command.ep
        token = bytes(self._ffi.buffer(command.token, self._lib.PSC_TOKEN_SIZE))
        if self._broken:
            self._fail(number, self._lib.PSC_ERR_CONNECT, self._broken)
        elif command.role == self._lib.PSC_ROLE_CONNECTOR:
            address = bytes(self._ffi.buffer(command.data, command.len))
            self._call(number, Connecting(token, number, command.peer), address)
        elif command.role == self._lib.PSC_ROLE_ACCEPTOR:
            self._expect(number, token, command.peer)
        else:
            reason = f"{self._name} connects to other processes only"
            self._fail(number, self._lib.PSC_ERR_CONNECT, reason)

    def _call(self, number: int, connecting: Connecting, address: bytes) -> None:
        channel = self._channels[number] = self._channel()
        channel.number = number
        channel.connecting = connecting
        channel.stage = Stage.PROVING
        with self._about(channel):
            self._transport.connect(channel, address)
            channel.push(connecting.hello, counted=False)
        self._flush(channel)

    def _expect(self, number: int, token: bytes, peer: int) -> None:
        self._expected[number] = token, peer
        for channel in list(self._callers):
            if channel.stage is Stage.WAITING and channel.number == number:
                self._answer(channel)
                return

    def _send(self, number: int, frame: bytes) -> None:
        channel = self._channels.get(number)
        if channel is not None and channel.stage is Stage.UP:
            channel.push(frame, counted=True)
            self._flush(channel)

    def _flush(self, channel: Channel) -> None:
        """Send the queued frames. An endpoint in stage CLOSING ends when its queue is empty."""
        if channel.stage is Stage.ENDED:
            return
        try:
            done = channel.flush(self._transport.send)
        except OSError as error:
            self._drain(channel)
            self._lose(channel, str(error) or type(error).__name__)
            return
        except Exception as error:
            logger.exception("%s: a link ends because of an error in the transport", self._name)
            self._lose(channel, describe(error))
            return
        for _ in range(done):
            self._lib.bridge_frame_done(self._bridge, channel.number)
        if channel.stage is Stage.CLOSING and not channel.blocked:
            self._lose(channel, "closed")
            return
        with self._about(channel):
            self._watches.update(channel)

    def _resume(self, number: int) -> None:
        channel = self._channels.get(number)
        if channel is None:
            return
        while channel.backlog:
            if not self._deliver(channel, channel.backlog[0]):
                return
            channel.backlog.popleft()
        if channel.reason:
            self._forget(channel)
            self._fail(number, self._lib.PSC_ERR_PEER_LOST, channel.reason)
        else:
            self._watches.update(channel)

    def _close(self, number: int) -> None:
        self._expected.pop(number, None)
        channel = self._channels.get(number)
        if channel is None or channel.stage is Stage.ENDED:
            self._channels.pop(number, None)
            self._lib.bridge_ep_closed(self._bridge, number)
        else:
            channel.stage = Stage.CLOSING
            self._flush(channel)

    # ---- calls of the transport ----

    def watch(self, fileobj: Any, read: Callable[[], object], link: Link | None) -> None:
        """See PythonTransport.watch."""
        assert link is None or isinstance(link, Channel), "a link that pscompy did not make"
        self._watches.add(fileobj, read, link)

    def unwatch(self, fileobj: Any) -> None:
        """See PythonTransport.unwatch."""
        self._watches.remove(fileobj)

    def accepted(self) -> Link:
        """See PythonTransport.accepted."""
        channel = self._channel()
        self._callers[channel] = None
        if len(self._callers) > CALLERS_MAX:
            self._lose(next(iter(self._callers)), "too many callers")
        return channel

    def received(self, link: Link, data: bytes) -> None:
        """See PythonTransport.received."""
        channel = link
        assert isinstance(channel, Channel), "a link that pscompy did not make"
        if not data:
            self._lose(channel, "the peer ended the link")
            return
        with self._about(channel):
            for frame in channel.cut(data):
                self._arrived(channel, frame)

    # ---- links ----

    def _channel(self) -> Channel:
        return Channel(self._transport.stream, self._transport.max_frame)

    def _arrived(self, channel: Channel, frame: bytes) -> None:
        if channel.stage is Stage.UP:
            if channel.backlog or not self._deliver(channel, frame):
                channel.backlog.append(frame)
                self._watches.update(channel)
        elif channel.stage is Stage.CALLED:
            channel.number, channel.nonce = read_hello(frame)
            channel.stage = Stage.WAITING
            if channel.number in self._expected:
                self._answer(channel)
        elif channel.stage is Stage.PROVING:
            self._prove(channel, frame)
        elif channel.stage is Stage.WAITING:
            raise ConnectionError("the caller sent a message out of turn")

    def _answer(self, channel: Channel) -> None:
        """Send the challenge: the endpoint that this caller has named expects a caller."""
        number = channel.number
        assert number is not None
        del self._callers[channel]
        self._channels[number] = channel
        token, peer = self._expected.pop(number)
        channel.accepting = Accepting(token, number, peer, channel.nonce)
        channel.stage = Stage.PROVING
        channel.push(channel.accepting.challenge, counted=False)
        self._flush(channel)

    def _prove(self, channel: Channel, frame: bytes) -> None:
        if channel.connecting is not None:
            channel.push(channel.connecting.challenged(frame), counted=False)
            self._flush(channel)
        elif channel.accepting is not None:
            channel.accepting.answered(frame)
        if channel.stage is Stage.PROVING:
            channel.stage = Stage.UP
            self._lib.bridge_ep_up(self._bridge, channel.number)

    def _deliver(self, channel: Channel, frame: bytes) -> bool:
        """Pass a frame to the bridge. Returns False if it takes no more; RESUME follows."""
        status = self._lib.bridge_deliver(self._bridge, channel.number, frame, len(frame))
        if status == self._lib.PSC_ERR_NO_RESOURCE:
            return False
        if status != self._lib.PSC_OK:
            raise ConnectionError("the peer sent bytes that are not a frame")
        return True

    def _drain(self, channel: Channel) -> None:
        """Read the data that the peer has sent before its link was lost."""
        watch = self._watches.of(channel)
        try:
            while watch is not None and channel.stage is Stage.UP:
                watch.read()
        except Exception as error:
            logger.debug("%s: nothing more to read: %s", self._name, describe(error))

    def _lose(self, channel: Channel, reason: str) -> None:
        """End a link for any reason, and notify the bridge unless it has been notified."""
        before, channel.stage = channel.stage, Stage.ENDED
        if before is Stage.ENDED:
            return
        watch = self._watches.of(channel)
        if watch is not None:
            self._watches.remove(watch.fileobj)
        self._shielded(lambda: self._transport.disconnect(channel))
        if before is Stage.UP and channel.backlog:
            channel.reason = reason  # reported after the backlog is delivered
            return
        self._forget(channel)
        if channel.number is None or before is Stage.WAITING:
            return
        if before is Stage.CLOSING:
            self._lib.bridge_ep_closed(self._bridge, channel.number)
        elif before is Stage.UP:
            self._fail(channel.number, self._lib.PSC_ERR_PEER_LOST, reason)
        else:
            self._fail(channel.number, self._lib.PSC_ERR_CONNECT, reason)

    def _forget(self, channel: Channel) -> None:
        self._callers.pop(channel, None)
        if channel.number is not None and self._channels.get(channel.number) is channel:
            del self._channels[channel.number]

    def _fail(self, number: int, status: int, reason: str) -> None:
        self._expected.pop(number, None)
        text = reason.encode("utf-8", "replace")
        self._lib.bridge_ep_failed(self._bridge, number, status, text)
