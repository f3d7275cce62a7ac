"""Addresses of handles, for code in C that uses this process's sessions through `psc_api_t`.

    from pscompy import capi

    lib.mine_start(capi.table(), capi.worker(session), capi.connection(connection))

C takes these addresses as `const psc_api_t *`, `psc_worker_t *` and `psc_conn_t *` of
`pscompy/core/api.h`, and compares `api->abi` with `PSC_API_ABI` before anything else. A worker has
one queue of completions: if C takes completions with `completion_poll`, Python must make no
requests in that session. `listen` and `begin_open` of this module make no requests. Such code ends
in this order: Python calls `disconnect`, C takes the last completions and frees its messages, and
Python calls `session.close`, which treats each completion that is left as one of a Python request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pscompy.api.c.guard import import_apart
from pscompy.api.connection import Connection
from pscompy.api.listener import Socket
from pscompy.api.session import Session
from pscompy.core import lib

if TYPE_CHECKING:
    from pscompy.world.communicator import Communicator


def table() -> int:
    """Return the address of the psc_api_t, which is valid as long as the process lives."""
    return int(lib.psc_api_address())


def worker(session: Session) -> int:
    """Return the address of the session's psc_worker_t, valid until the session is closed."""
    return session._binding.address


def drain(session: Session) -> None:
    """Deliver what the core has completed, as Python's waits do: run call-backs, and call the
    functions of collectives.

    C calls this when `wait` has returned PSC_INPROGRESS. A collective that C starts with `combine`,
    PSC_FLAG_NOTIFY and no owner has its function called by any thread that drains, so that no rank
    waits for a rank that waits for something else. Free such a request with the GIL held.
    """
    session._binding.drain()


def connection(of: Connection) -> int:
    """Return the address of the psc_conn_t, which is valid as long as the Connection exists and its
    session is open. From now on C may open it by `conn_open`. Raises `AuthError` if there is no
    usable key."""
    of._context.control.expect(of._record)
    return of._record.conn.address


def context(communicator: Communicator) -> int:
    """Return the number of the context in which the communicator's plain messages travel."""
    return communicator._context.number


def members(communicator: Communicator) -> list[int]:
    """Return the rank in the job of each rank of the communicator."""
    return list(communicator._members)


def shared_file(communicator: Communicator, nbytes: int) -> int:
    """Return the descriptor of a file in memory of so many bytes, the same file for all ranks.
    They are on one node. Each opens it for itself, so that the kernel tells their locks apart,
    and closes it. Collective. OSError on all ranks if one cannot open it."""
    communicator._check()
    import_apart("pscompy.world.shared")
    from pscompy.world.shared import opened

    return opened(communicator._collectives, nbytes)


def listen(
    session: Session, host: str | None, port: int, on_connection: Callable[[Connection], object]
) -> Socket:
    """Listen like `session.listen`, but pass each connection that comes up to `on_connection`
    instead of `accept`. `on_connection` is called on the control thread, and must return soon."""
    return session._listen(host, port, on_connection)


def disconnect(session: Session) -> bool:
    """Close the session's sockets and connections, as `session.close` does, and keep its worker, so
    that C can take the completions of its last requests; some of them may need `progress` calls
    until a fabric has released their buffers. Returns False if the session's control thread is
    stuck in a call of the core: C must not call the core then. Only `session.close` may follow."""
    session._end_connections(session.config["SHUTDOWN_TIMEOUT"])
    return bool(session._control_ended)


def begin_open(connection: Connection) -> None:
    """Connect in the background, without a request. `connection.state` leaves CONNECTING when the
    connection is up or has failed, and `connection.explain()` has the reason."""
    connection._begin_open()
