"""The door of parcels: all that the public API knows of them.

Parcels stand above the public API, which opens this door at the first object or action. Each
function imports what it needs, so that a program that sends no objects loads none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pscompy.api.c.guard import import_apart
from pscompy.core import lib

if TYPE_CHECKING:
    from pscompy.api.c import _binding
    from pscompy.config.config import Config
    from pscompy.parcel.action_service import Service as Service
    from pscompy.parcel.callers import Caller as Caller
    from pscompy.parcel.calls import ActionPeer as ActionPeer
    from pscompy.parcel.doubts import Presence as Presence
    from pscompy.parcel.future import Future as Future
    from pscompy.parcel.objects import Objects as Objects


def make_objects(
    heads: _binding.Connection,
    chunks: _binding.Connection,
    config: Config,
    eager_max: Callable[[], int | None],
    kind: int | None = None,
) -> Objects:
    """Make the Objects of a connection, which is `heads` and `chunks` in two contexts. `kind` is
    that of objects unless it is given."""
    import_apart("pscompy.parcel.objects", "pscompy.parcel.pickling")
    from pscompy.parcel.objects import OBJECT, Objects
    from pscompy.parcel.pickling import Pickling

    return Objects(heads, chunks, Pickling(config), eager_max, OBJECT if kind is None else kind)


def make_action_peer(source: object, make: Callable[[int, int], Objects]) -> ActionPeer:
    """Make the ActionPeer of `source`; `make` makes Objects in a context, of a kind."""
    import_apart("pscompy.parcel.calls", "pscompy.parcel.objects")
    from pscompy.parcel.calls import ActionPeer
    from pscompy.parcel.objects import ANSWER, CALL

    calls = make(lib.PSC_CONTEXT_ACTIONS, CALL)
    return ActionPeer(source, calls, make(lib.PSC_CONTEXT_OBJECTS + 1, ANSWER))


def make_caller(
    service: Service,
    peer: ActionPeer,
    timeout: float | None,
    on_sent: Callable[[], object] | None,
) -> Caller:
    """Make an object that calls actions of `peer` with these options."""
    import_apart("pscompy.parcel.callers", "pscompy.parcel.calls")
    from pscompy.parcel.callers import Caller
    from pscompy.parcel.calls import Options

    return Caller(service, peer, Options(timeout, on_sent))


def make_service(
    worker: _binding.Worker,
    size: int,
    context: int,
    find_action_peer: Callable[[Any], ActionPeer | None],
    config: Config,
    name: str,
    presence: Presence | None,
) -> Service:
    """Make the service that runs the actions which peers call in a context of `size` ranks."""
    import_apart("pscompy.parcel.action_service", "pscompy.parcel.objects")
    from pscompy.parcel.action_service import Service
    from pscompy.parcel.objects import anybody

    calls = anybody(worker, size, context + lib.PSC_CONTEXT_ACTIONS)
    return Service(worker, calls, find_action_peer, config, name, presence)
