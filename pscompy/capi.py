"""Addresses, for code in C that uses this process's sessions through `psc_api_t`.

    from pscompy import capi

    lib.mine_start(capi.table(), capi.worker(session), capi.connection(connection))

C takes them as `const psc_api_t *`, `psc_worker_t *` and `psc_conn_t *` of `pscompy/core/api.h`,
and compares `api->abi` with `PSC_API_ABI` before anything else. A worker has one queue of
completions: where C takes them with `completion_poll`, Python makes no requests in that session,
and uses `listen` and `begin_open` of this module, which make none.
"""

from __future__ import annotations

from collections.abc import Callable

from pscompy.api.connection import Connection
from pscompy.api.listener import Socket
from pscompy.api.session import Session
from pscompy.control.worker import Engine
from pscompy.core import lib


def table() -> int:
    """The psc_api_t, which lives as long as the process."""
    return int(lib.psc_api_address())


def worker(session: Session) -> int:
    """Its psc_worker_t, until the session is closed."""
    return session._hot.address


def connection(of: Connection) -> int:
    """Its psc_conn_t, as long as the Connection is there and its session open."""
    return Engine.address_of(of._record.handle)


def listen(
    session: Session, host: str | None, port: int, on_connection: Callable[[Connection], object]
) -> Socket:
    """`session.listen`, with a Socket that has nothing to accept: `on_connection` gets each
    connection that comes up, on a thread of the session that has more to do."""
    return session._listen(host, port, on_connection)


def begin_open(connection: Connection) -> None:
    """Have it connect in the background; no request is made. `connection.state` leaves CONNECTING
    when it has, or has not, and `connection.explain()` says why."""
    connection._begin_open()
