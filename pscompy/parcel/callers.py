"""The objects that `with_options` returns: they call actions with common options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pscompy.parcel.action_service import Service
    from pscompy.parcel.calls import ActionPeer, Options
    from pscompy.parcel.future import Future


class Caller:
    """Calls actions of one peer with given options."""

    __slots__ = ("_action_peer", "_options", "_service")

    def __init__(self, service: Service, peer: ActionPeer, options: Options) -> None:
        self._service = service
        self._action_peer = peer
        self._options = options

    def submit(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Future:
        """Like `Connection.submit`, with the options of this Caller."""
        return self._service.submit(self._action_peer, function, args, kwargs, self._options)

    def call(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Any:
        """Like `Connection.call`, with the options of this Caller."""
        return self.submit(function, *args, **kwargs).result()


class RankCaller:
    """Calls actions of the ranks of a communicator; `callers(rank)` is the Caller of one rank."""

    __slots__ = ("_callers",)

    def __init__(self, callers: Callable[[int], Caller]) -> None:
        self._callers = callers

    def submit(
        self, rank: int, function: Callable[..., object], /, *args: Any, **kwargs: Any
    ) -> Future:
        """Like `Communicator.submit`, with the options of the rank's Caller."""
        return self._callers(rank).submit(function, *args, **kwargs)

    def call(self, rank: int, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Any:
        """Like `Communicator.call`, with the options of the rank's Caller."""
        return self._callers(rank).call(function, *args, **kwargs)
