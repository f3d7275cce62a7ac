"""Socket: a local address that other processes connect to."""

from __future__ import annotations

import heapq
import itertools
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from pscompy.api.c.guard import guard
from pscompy.api.request import Request
from pscompy.api.timeouts import as_seconds
from pscompy.errors import Closed, Timeout

if TYPE_CHECKING:
    from pscompy.api.connection import Connection


class Accepting(Request["Connection"]):
    """A request for the next connection of a socket."""

    sock: Socket
    number: int  # counts the requests of the socket
    # the connection that this request was given, with its number in the order of establishment
    arrival: tuple[int, Connection] | None = None

    def cancel(self) -> bool:
        self.sock._strike_out(self)
        return super().cancel()

    def __del__(self) -> None:
        """Withdraw the request, which the program has dropped, unless callbacks wait for it."""
        if self._watched:
            self.sock._hold(self)
        elif self._worker.address:  # 0 once the session is closed
            self._requeue()
        super().__del__()

    def _requeue(self, anyway: bool = False) -> bool:
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
        on_connection: Callable[[Connection], object] | None = None,
    ) -> None:
        """`new_request` makes a request of the session; `stop` is called once, by `close`.
        `on_connection` gets the connections instead of `accept`."""
        self._new_request = new_request
        self._stop = stop
        self._on_connection = on_connection or self._deliver
        self._listener: Any = None  # set by the session once it listens
        self._count = itertools.count()
        self._requests = itertools.count()
        # a heap of established connections, the earliest first
        self._ready: list[tuple[int, Connection]] = []
        # The requests that wait for a connection, by number. The references are weak, so that a
        # request that the program drops takes no connection.
        self._waiting: dict[int, Callable[[], Accepting | None]] = {}
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
        timeout = as_seconds(timeout)
        request = self._accepting()
        try:
            connection = request.wait(timeout)
        except Timeout:
            if request.cancel():
                raise Timeout(f"no connection within {timeout:g} s") from None
            # the connection came up just before the request was withdrawn
            connection = request.result()
        except BaseException:
            request._requeue()
            raise
        return connection

    def iaccept(self) -> Request[Connection]:
        """Return a request for the next connection, to be waited for, awaited or cancelled."""
        return self._accepting()

    def _accepting(self) -> Accepting:
        request = self._new_request(Accepting)
        request.sock, request.number = self, next(self._requests)
        with guard:
            self._waiting[request.number] = weakref.ref(request)
            self._hand_out()
            if self._closed and request.arrival is None:
                self._strike_out(request)
                request._fail(self._closed_error())
        return request

    def close(self) -> None:
        """Refuse further connections, and close those that nobody has accepted."""
        with guard:
            if self._closed:
                return
            self._closed = True
            waiting = [refer() for refer in self._waiting.values()]
            ready = sorted(self._ready)
            self._waiting.clear()
            self._ready.clear()
        self._stop(self)
        for request in waiting:
            if request is not None:
                request._fail(self._closed_error())
        for _, connection in ready:
            connection.close()

    def _arrived(self, connection: Connection) -> None:
        """Take a connection that has come up. Called on the control thread."""
        self._on_connection(connection)

    def _deliver(self, connection: Connection) -> None:
        self._keep((next(self._count), connection))

    def _keep(self, arrival: tuple[int, Connection]) -> None:
        with guard:
            if not self._closed:
                heapq.heappush(self._ready, arrival)
                self._hand_out()
                return
        arrival[1].close()

    def _hand_out(self) -> None:
        """Give connections to the earliest requests. Called with the guard held."""
        while self._ready and self._waiting:
            arrival = heapq.heappop(self._ready)
            request = self._earliest()
            if request is not None:
                request.arrival = arrival
                if request._complete(arrival[1]):
                    # If this destroys the request, its connection returns to the heap here.
                    request = None
                    continue
                request.arrival = None
            heapq.heappush(self._ready, arrival)

    def _earliest(self) -> Accepting | None:
        """Take the earliest request that waits. Returns None if the program has dropped it."""
        number = min(self._waiting, default=-1)
        return self._waiting.pop(number, lambda: None)()

    def _hold(self, request: Accepting) -> None:
        """Keep a request that the program has dropped, because callbacks wait for it."""
        with guard:
            closed = self._closed
            if request.arrival is None and not closed:
                self._waiting[request.number] = lambda: request
                self._hand_out()
        if closed:
            request._fail(self._closed_error())  # no effect if it has completed

    def _strike_out(self, request: Accepting) -> None:
        with guard:
            self._waiting.pop(request.number, None)

    def _put_back(self, request: Accepting) -> None:
        """Take back a request that nobody waits for any more. If the request holds a connection
        that nobody has seen, the connection keeps its place in the order."""
        self._strike_out(request)
        # From here on `arrival` stays as it is.
        if request._revoke() and request.arrival is not None:
            self._keep(request.arrival)

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
