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
from pscompy.transport.python.bridged_link import BridgedLink, Stage
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
        self._bridged: dict[int, BridgedLink] = {}
        self._callers: OrderedDict[BridgedLink, None] = OrderedDict()
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
        for bridged in [*self._bridged.values(), *self._callers]:
            self._lose(bridged, reason)

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
        bridged = watch.bridged
        if bridged is None:
            self._read_shared(watch)
            return
        if events & WRITE:
            self._flush(bridged)
        if events & READ and bridged.stage is not Stage.ENDED:
            with self._about(bridged), suppress(BlockingIOError):
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
    def _about(self, bridged: BridgedLink) -> Iterator[None]:
        """End the link `bridged` if an exception is raised inside this context, and suppress the
        exception."""
        try:
            yield
        except OSError as error:
            self._lose(bridged, str(error) or type(error).__name__)
        except Exception as error:
            logger.exception("%s: a link ends because of an error in the transport", self._name)
            self._lose(bridged, describe(error))

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
        bridged = self._bridged[number] = self._bridged_link()
        bridged.number = number
        bridged.proof = connecting
        bridged.stage = Stage.PROVING
        with self._about(bridged):
            self._transport.connect(bridged, address)
            bridged.push(connecting.first, counted=False)
        self._flush(bridged)

    def _expect(self, number: int, token: bytes, peer: int) -> None:
        self._expected[number] = token, peer
        for bridged in list(self._callers):
            if bridged.stage is Stage.WAITING and bridged.number == number:
                self._answer(bridged)
                return

    def send(self, number: int, frame: bytes) -> None:
        bridged = self._bridged.get(number)
        if bridged is not None and bridged.stage is Stage.UP:
            bridged.push(frame, counted=True)
            self._flush(bridged)

    def _flush(self, bridged: BridgedLink) -> None:
        """Send the queued frames. A link in stage CLOSING ends when its queue is empty."""
        if bridged.stage is Stage.ENDED:
            return
        try:
            done = bridged.flush(self._transport.send)
        except OSError as error:
            self._drain(bridged)
            self._lose(bridged, str(error) or type(error).__name__)
            return
        except Exception as error:
            logger.exception("%s: a link ends because of an error in the transport", self._name)
            self._lose(bridged, describe(error))
            return
        for _ in range(done):
            self._lib.bridge_frame_done(self.bridge, bridged.number)
        if bridged.stage is Stage.CLOSING and not bridged.blocked:
            self._lose(bridged, "closed")
            return
        with self._about(bridged):
            self.watches.update(bridged)

    def resume(self, number: int) -> None:
        bridged = self._bridged.get(number)
        if bridged is None:
            return
        try:
            while bridged.backlog:
                if not self._deliver(bridged, bridged.backlog[0]):
                    return
                bridged.backlog.popleft()
        except OSError as error:
            bridged.backlog.clear()
            self._lose(bridged, str(error))
        if bridged.reason:
            self._forget(bridged)
            self._fail(number, self._lib.PSC_ERR_PEER_LOST, bridged.reason)
        elif bridged.stage is not Stage.ENDED:
            self.watches.update(bridged)

    def close(self, number: int) -> None:
        self._expected.pop(number, None)
        bridged = self._bridged.get(number)
        if bridged is None or bridged.stage is Stage.ENDED:
            self._bridged.pop(number, None)
            self._lib.bridge_ep_closed(self.bridge, number)
        else:
            bridged.stage = Stage.CLOSING
            self._flush(bridged)

    # ---- calls of the transport ----

    def watch(self, fileobj: Any, read: Callable[[], object], link: Link | None) -> None:
        """Watch a descriptor for the transport; see PythonTransport.watch."""
        assert link is None or isinstance(link, BridgedLink), "a link that pscompy did not make"
        self.watches.add(fileobj, read, link)

    def unwatch(self, fileobj: Any) -> None:
        """Stop watching a descriptor; see PythonTransport.unwatch."""
        self.watches.remove(fileobj)

    def accepted(self) -> Link:
        """Return the link to a peer that has connected; see PythonTransport.accepted."""
        bridged = self._bridged_link()
        self._callers[bridged] = None
        if len(self._callers) > CALLERS_MAX:
            self._lose(next(iter(self._callers)), "too many callers")
        return bridged

    def received(self, link: Link, data: bytes) -> None:
        """Process the frames that this data completes; see PythonTransport.received."""
        bridged = link
        assert isinstance(bridged, BridgedLink), "a link that pscompy did not make"
        if not data:
            self._lose(bridged, "the peer ended the link")
            return
        with self._about(bridged):
            for frame in bridged.cut(data):
                self._arrived(bridged, frame)

    # ---- links ----

    def _bridged_link(self) -> BridgedLink:
        return BridgedLink(self._transport.stream, self._transport.max_frame)

    def _arrived(self, bridged: BridgedLink, frame: bytes) -> None:
        if bridged.stage is Stage.UP:
            if bridged.backlog or not self._deliver(bridged, frame):
                bridged.backlog.append(frame)
                self.watches.update(bridged)
        elif bridged.stage is Stage.CALLED:
            bridged.number, bridged.nonce = read_hello(frame)
            bridged.stage = Stage.WAITING
            if bridged.number in self._expected:
                self._answer(bridged)
        elif bridged.stage is Stage.PROVING:
            self._prove(bridged, frame)
        elif bridged.stage is Stage.WAITING:
            raise ConnectionError("the caller sent a message out of turn")

    def _answer(self, bridged: BridgedLink) -> None:
        """Send the challenge of the token proof to a peer that has connected and has named one of
        our endpoints in `_expected`."""
        number = bridged.number
        assert number is not None
        del self._callers[bridged]
        self._bridged[number] = bridged
        token, peer = self._expected.pop(number)
        bridged.proof = Accepting(token, number, peer, bridged.nonce)
        bridged.stage = Stage.PROVING
        bridged.push(bridged.proof.first, counted=False)
        self._flush(bridged)

    def _prove(self, bridged: BridgedLink, frame: bytes) -> None:
        assert bridged.proof is not None
        if reply := bridged.proof.receive(frame):
            bridged.push(reply, counted=False)
            self._flush(bridged)
        if bridged.stage is Stage.PROVING:
            bridged.stage = Stage.UP
            self._lib.bridge_ep_up(self.bridge, bridged.number)

    def _deliver(self, bridged: BridgedLink, frame: bytes) -> bool:
        """Pass a frame to the bridge. Returns False if the bridge has no room; its command
        BRIDGE_RESUME follows when it has."""
        status = self._lib.bridge_deliver(self.bridge, bridged.number, frame, len(frame))
        if status == self._lib.PSC_ERR_NO_RESOURCE:
            return False
        if status == self._lib.PSC_ERR_NO_MEMORY:
            raise OSError("this process has no memory for a frame that has arrived")
        if status != self._lib.PSC_OK:
            raise ConnectionError("the peer sent bytes that are not a frame")
        return True

    def _drain(self, bridged: BridgedLink) -> None:
        """Read the data that the peer has sent before its link was lost."""
        watch = self.watches.of(bridged)
        try:
            while watch is not None and bridged.stage is Stage.UP:
                watch.read()
        except Exception as error:
            logger.debug("%s: nothing more to read: %s", self._name, describe(error))

    def _lose(self, bridged: BridgedLink, reason: str) -> None:
        """End a link for any reason, and notify the bridge unless it has been notified."""
        before, bridged.stage = bridged.stage, Stage.ENDED
        if before is Stage.ENDED:
            return
        watch = self.watches.of(bridged)
        if watch is not None:
            self.watches.remove(watch.fileobj)
        with self._shielded():
            self._transport.disconnect(bridged)
        if before is Stage.UP and bridged.backlog:
            # reported after the backlog (frames that have arrived) is delivered
            bridged.reason = reason
            return
        self._forget(bridged)
        if bridged.number is None or before is Stage.WAITING:
            return
        if before is Stage.CLOSING:
            self._lib.bridge_ep_closed(self.bridge, bridged.number)
        elif before is Stage.UP:
            self._fail(bridged.number, self._lib.PSC_ERR_PEER_LOST, reason)
        else:
            self._fail(bridged.number, self._lib.PSC_ERR_CONNECT, reason)

    def _forget(self, bridged: BridgedLink) -> None:
        self._callers.pop(bridged, None)
        if bridged.number is not None and self._bridged.get(bridged.number) is bridged:
            del self._bridged[bridged.number]

    def _fail(self, number: int, status: int, reason: str) -> None:
        self._expected.pop(number, None)
        text = reason.encode("utf-8", "replace")
        self._lib.bridge_ep_failed(self.bridge, number, status, text)
