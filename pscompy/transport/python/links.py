"""The links of one transport written in Python: how they begin, pass frames, and end.

All methods are called on the pump's thread.
"""

from __future__ import annotations

import errno
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pscompy.errors import describe
from pscompy.transport.python.base import Link, PythonTransport
from pscompy.transport.python.channel import Channel, Stage
from pscompy.transport.python.native import native
from pscompy.transport.python.proof import Accepting, Connecting, read_hello
from pscompy.transport.python.watches import READ, WRITE, Watch, Watches

logger = logging.getLogger("pscompy.plugin")  # the logger of plug-ins

# maximum number of peers at once that have connected and not begun the token proof
CALLERS_MAX = 64
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # errors that pass


class Links:
    """The links of a transport, and the bridge's endpoints that still wait for a link.

    The transport reports to this object what its links receive. `bridge` is set as soon as the
    transport is open.
    """

    def __init__(self, name: str, transport: PythonTransport) -> None:
        module = native()
        self._ffi, self._lib = module.ffi, module.lib
        self._name = name
        self._transport = transport
        self.watches = Watches()
        self.bridge: Any = None
        self.broken = ""  # why the transport has failed
        self._short_logged = False  # a shortage of descriptors or memory was logged
        self._channels: dict[int, Channel] = {}
        self._callers: OrderedDict[Channel, None] = OrderedDict()
        # token and number of the peer's endpoint, by the number of our endpoint that waits for a
        # caller
        self._expected: dict[int, tuple[bytes, int]] = {}
        transport._caller = self

    def close_transport(self) -> None:
        """Close the transport; an exception is only logged."""
        with self._shielded():
            self._transport.close()

    def lose_all(self, reason: str) -> None:
        """End all links, and report the reason to the bridge."""
        for channel in [*self._channels.values(), *self._callers]:
            self._lose(channel, reason)

    def break_all(self, reason: str) -> None:
        """Handle a failure of the whole transport: all links fail, and so do links that are begun
        later."""
        self.broken = reason
        for number in list(self._expected):
            self._fail(number, self._lib.PSC_ERR_CONNECT, reason)
        self.lose_all(reason)
        self.watches.clear()
        self.close_transport()

    def ready(self, watch: Watch, events: int) -> None:
        """Handle the events of a watched descriptor: send queued frames, or call its reader."""
        channel = watch.channel
        if channel is None:
            self._read_shared(watch)
            return
        if events & WRITE:
            self._flush(channel)
        if events & READ and channel.stage is not Stage.ENDED:
            with self._about(channel), suppress(BlockingIOError):
                watch.read()

    def _read_shared(self, watch: Watch) -> None:
        """Call a reader that serves no single link. It is called again after a pause if
        descriptors or memory are short."""
        try:
            watch.read()
        except (BlockingIOError, ConnectionError):  # no peer to accept, or it has hung up
            pass
        except OSError as error:
            if error.errno not in SHORTAGES:
                raise
            self.watches.pause(watch)
            if not self._short_logged:
                self._short_logged = True
                logger.error("%s can accept no peer now: %s", self._name, error.strerror)

    @contextmanager
    def _shielded(self) -> Iterator[None]:
        """Log an exception that is raised inside this context, and suppress it."""
        try:
            yield
        except Exception:
            logger.exception("%s failed while it was ending", self._name)

    @contextmanager
    def _about(self, channel: Channel) -> Iterator[None]:
        """End the link `channel` if an exception is raised inside this context, and suppress the
        exception."""
        try:
            yield
        except OSError as error:
            self._lose(channel, str(error) or type(error).__name__)
        except Exception as error:
            logger.exception("%s: a link ends because of an error in the transport", self._name)
            self._lose(channel, describe(error))

    # ---- commands of the bridge ----

    def connect(self, command: Any) -> None:
        number = command.ep
        token = bytes(self._ffi.buffer(command.token, self._lib.PSC_TOKEN_SIZE))
        if self.broken:
            self._fail(number, self._lib.PSC_ERR_CONNECT, self.broken)
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
        channel.proof = connecting
        channel.stage = Stage.PROVING
        with self._about(channel):
            self._transport.connect(channel, address)
            channel.push(connecting.first, counted=False)
        self._flush(channel)

    def _expect(self, number: int, token: bytes, peer: int) -> None:
        self._expected[number] = token, peer
        for channel in list(self._callers):
            if channel.stage is Stage.WAITING and channel.number == number:
                self._answer(channel)
                return

    def send(self, number: int, frame: bytes) -> None:
        channel = self._channels.get(number)
        if channel is not None and channel.stage is Stage.UP:
            channel.push(frame, counted=True)
            self._flush(channel)

    def _flush(self, channel: Channel) -> None:
        """Send the queued frames. A link in stage CLOSING ends when its queue is empty."""
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
            self._lib.bridge_frame_done(self.bridge, channel.number)
        if channel.stage is Stage.CLOSING and not channel.blocked:
            self._lose(channel, "closed")
            return
        with self._about(channel):
            self.watches.update(channel)

    def resume(self, number: int) -> None:
        channel = self._channels.get(number)
        if channel is None:
            return
        try:
            while channel.backlog:
                if not self._deliver(channel, channel.backlog[0]):
                    return
                channel.backlog.popleft()
        except OSError as error:
            channel.backlog.clear()
            self._lose(channel, str(error))
        if channel.reason:
            self._forget(channel)
            self._fail(number, self._lib.PSC_ERR_PEER_LOST, channel.reason)
        elif channel.stage is not Stage.ENDED:
            self.watches.update(channel)

    def close(self, number: int) -> None:
        self._expected.pop(number, None)
        channel = self._channels.get(number)
        if channel is None or channel.stage is Stage.ENDED:
            self._channels.pop(number, None)
            self._lib.bridge_ep_closed(self.bridge, number)
        else:
            channel.stage = Stage.CLOSING
            self._flush(channel)

    # ---- calls of the transport ----

    def watch(self, fileobj: Any, read: Callable[[], object], link: Link | None) -> None:
        """Watch a descriptor for the transport; see PythonTransport.watch."""
        assert link is None or isinstance(link, Channel), "a link that pscompy did not make"
        self.watches.add(fileobj, read, link)

    def unwatch(self, fileobj: Any) -> None:
        """Stop watching a descriptor; see PythonTransport.unwatch."""
        self.watches.remove(fileobj)

    def accepted(self) -> Link:
        """Return the link to a peer that has connected; see PythonTransport.accepted."""
        channel = self._channel()
        self._callers[channel] = None
        if len(self._callers) > CALLERS_MAX:
            self._lose(next(iter(self._callers)), "too many callers")
        return channel

    def received(self, link: Link, data: bytes) -> None:
        """Process the frames that this data completes; see PythonTransport.received."""
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
                self.watches.update(channel)
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
        """Send the challenge of the token proof to a peer that has connected and has named one of
        our endpoints in `_expected`."""
        number = channel.number
        assert number is not None
        del self._callers[channel]
        self._channels[number] = channel
        token, peer = self._expected.pop(number)
        channel.proof = Accepting(token, number, peer, channel.nonce)
        channel.stage = Stage.PROVING
        channel.push(channel.proof.first, counted=False)
        self._flush(channel)

    def _prove(self, channel: Channel, frame: bytes) -> None:
        assert channel.proof is not None
        if reply := channel.proof.receive(frame):
            channel.push(reply, counted=False)
            self._flush(channel)
        if channel.stage is Stage.PROVING:
            channel.stage = Stage.UP
            self._lib.bridge_ep_up(self.bridge, channel.number)

    def _deliver(self, channel: Channel, frame: bytes) -> bool:
        """Pass a frame to the bridge. Returns False if the bridge has no room; its command
        BRIDGE_RESUME follows when it has."""
        status = self._lib.bridge_deliver(self.bridge, channel.number, frame, len(frame))
        if status == self._lib.PSC_ERR_NO_RESOURCE:
            return False
        if status == self._lib.PSC_ERR_NO_MEMORY:
            raise OSError("this process has no memory for a frame that has arrived")
        if status != self._lib.PSC_OK:
            raise ConnectionError("the peer sent bytes that are not a frame")
        return True

    def _drain(self, channel: Channel) -> None:
        """Read the data that the peer has sent before its link was lost."""
        watch = self.watches.of(channel)
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
        watch = self.watches.of(channel)
        if watch is not None:
            self.watches.remove(watch.fileobj)
        with self._shielded():
            self._transport.disconnect(channel)
        if before is Stage.UP and channel.backlog:
            # reported after the backlog (frames that have arrived) is delivered
            channel.reason = reason
            return
        self._forget(channel)
        if channel.number is None or before is Stage.WAITING:
            return
        if before is Stage.CLOSING:
            self._lib.bridge_ep_closed(self.bridge, channel.number)
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
        self._lib.bridge_ep_failed(self.bridge, number, status, text)
