"""Socket: a local address where other processes can connect to."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator

from pscompy.errors import Closed, Timeout
from pscompy.request import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from pscompy.connection import Connection
    from pscompy.session import Session


class Socket:
    """What `Session.listen` returns.

    Connections come up without anybody calling `accept`; `accept` hands them out in the order
    in which they did.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._listener: Any = None  # set by the session once it listens
        self._lock = threading.Lock()
        self._ready: deque[Connection] = deque()
        self._waiting: deque[Request] = deque()
        self._next: Request | None = None  # of the iteration
        self._closed = False

    @property
    def address(self) -> str:
        """What another process gives to `connect`; has no spaces."""
        return str(self._listener.address)

    def accept(self, timeout: float | None = None) -> Connection:
        """The next connection that is up; waits at most `timeout` seconds.

        `Timeout`: none came, and none is lost. `Closed`: the socket was closed.
        """
        request = self.iaccept()
        try:
            connection: Connection = request.wait(timeout)
        except BaseException as error:
            late = self._take_back(request)
            if late is None or not isinstance(error, Timeout):
                error_request = getattr(error, "request", None)
                if error_request is not None:
                    raise Timeout(f"no connection within {timeout} s") from None
                raise
            return late
        return connection

    def iaccept(self) -> Request:
        """A request for the next connection: wait for it, await it, or cancel it."""
        request: Request = self._session._event()
        with self._lock:
            if self._ready:
                request._complete(self._ready.popleft())
            elif self._closed:
                request._fail(self._closed_error())
            else:
                self._waiting.append(request)
        return request

    def close(self) -> None:
        """Take no more connections in. Those that were accepted stay; others are closed."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting, ready = list(self._waiting), list(self._ready)
            self._waiting.clear()
            self._ready.clear()
        self._session._stop_listening(self)
        for request in waiting:
            request._fail(self._closed_error())
        for connection in ready:
            connection.close()

    def _deliver(self, connection: Connection) -> None:
        """On the control thread: a connection has come up."""
        with self._lock:
            if self._closed:
                refused = connection
            else:
                self._hand_out(connection)
                return
        refused.close()

    def _hand_out(self, connection: Connection) -> None:
        while self._waiting:
            if self._waiting.popleft()._complete(connection):
                return
        self._ready.append(connection)

    def _take_back(self, request: Request) -> Connection | None:
        """Give up waiting. A connection that came in the last moment is returned, or put back."""
        with self._lock:
            if request in self._waiting:
                self._waiting.remove(request)
        return None if request.cancel() else request.result()

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
        """Accept until the socket is closed. What came while nobody waited is not lost."""
        while True:
            self._next = self._next or self.iaccept()
            try:
                connection = await self._next
            except Closed:
                return
            self._next = None
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
