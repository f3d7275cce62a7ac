"""Socket: a local address that other processes connect to."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from pscompy.api.request import Request
from pscompy.errors import Closed, Timeout

if TYPE_CHECKING:
    from pscompy.api.connection import Connection


class Accepting(Request["Connection"]):
    """A request for the next connection of a socket."""

    sock: Socket
    # the connection that this request was given, with its number in the order of establishment
    place: tuple[int, Connection] | None = None

    def _give_back(self, anyway: bool = False) -> bool:
        self.sock._put_back(self)
        return False


class Socket:
    """A listening address of a session, made by `Session.listen`.

    Connections are established in the background; `accept` returns them in the order in which
    they came up.
    """

    def __init__(
        self,
        new_request: Callable[[type[Accepting]], Accepting],
        stop: Callable[[Socket], object],
    ) -> None:
        """`new_request` makes a request of the session; `stop` is called once, by `close`."""
        self._new_request = new_request
        self._stop = stop
        self._listener: Any = None  # set by the session once it listens
        self._lock = threading.Lock()
        self._count = itertools.count()
        # a heap of established connections, the earliest first
        self._ready: list[tuple[int, Connection]] = []
        self._waiting: deque[Accepting] = deque()
        self._closed = False

    @property
    def address(self) -> str:
        """The address that other processes pass to `connect`. It contains no spaces."""
        return str(self._listener.address)

    def accept(self, timeout: float | None = None) -> Connection:
        """Wait at most `timeout` seconds for the next connection that is up, and return it.

        `Timeout` if there was no connection; one that comes up later is not lost. `Closed` if the
        socket was closed.
        """
        request = self._accepting()
        try:
            connection = request.wait(timeout)
        except Timeout:
            if self._withdraw(request):
                raise Timeout(f"no connection within {timeout} s") from None
            # the connection came up just before the request was withdrawn
            connection = request.result()
        except BaseException:
            request._give_back()
            raise
        return connection

    def iaccept(self) -> Request[Connection]:
        """Return a request for the next connection, to be waited for, awaited or cancelled."""
        return self._accepting()

    def _accepting(self) -> Accepting:
        request = self._new_request(Accepting)
        request.sock = self
        with self._lock:
            self._waiting.append(request)
            self._hand_out()
            if self._closed and request.place is None:
                self._waiting.remove(request)
                request._fail(self._closed_error())
        return request

    def close(self) -> None:
        """Refuse further connections, and close those that nobody has accepted."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting, ready = list(self._waiting), sorted(self._ready)
            self._waiting.clear()
            self._ready.clear()
        self._stop(self)
        for request in waiting:
            request._fail(self._closed_error())
        for _, connection in ready:
            connection.close()

    def _deliver(self, connection: Connection) -> None:
        """Hand out a connection that has come up. Called on the control thread."""
        self._keep((next(self._count), connection))

    def _keep(self, place: tuple[int, Connection]) -> None:
        with self._lock:
            if not self._closed:
                heapq.heappush(self._ready, place)
                self._hand_out()
                return
        place[1].close()

    def _hand_out(self) -> None:
        while self._ready and self._waiting:
            request = self._waiting.popleft()
            request.place = self._ready[0]
            if request._complete(self._ready[0][1]):
                heapq.heappop(self._ready)
            else:
                request.place = None

    def _put_back(self, request: Accepting) -> None:
        """Take back a request that nobody waits for any more. If the request holds a connection
        that nobody has seen, the connection keeps its place in the order."""
        with self._lock:
            if request in self._waiting:
                self._waiting.remove(request)
            place = request.place if request._revoke() else None
        if place is not None:
            self._keep(place)

    def _withdraw(self, request: Accepting) -> bool:
        with self._lock:
            if request in self._waiting:
                self._waiting.remove(request)
        return request.cancel()

    def _closed_error(self) -> Closed:
        return Closed(f"the socket {self.address} is closed")

    def __iter__(self) -> Iterator[Connection]:
        """Accept until the socket is closed."""
        while True:
            try:
                yield self.accept()
            except Closed:
                return

    async def __aiter__(self) -> AsyncIterator[Connection]:
        """Accept until the socket is closed. A connection that comes up between two iterations is
        kept."""
        while True:
            try:
                connection = await self.iaccept()
            except Closed:
                return
            yield connection

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Socket:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Socket {self.address}{' closed' if self._closed else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Socket stays in its process: send its address instead")
