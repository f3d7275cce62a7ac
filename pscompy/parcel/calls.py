"""Types for the calls of actions to and from a peer: its ActionPeer, the Options of a call, and a
Call that has arrived."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from pscompy.api.timeouts import as_seconds
from pscompy.parcel.call_group import Called, CallGroup

if TYPE_CHECKING:
    import weakref

    from pscompy.parcel.action import Registered
    from pscompy.parcel.call_group import Batch
    from pscompy.parcel.future import Future
    from pscompy.parcel.objects import Objects


class ActionPeer:
    """The Objects (see objects.py) that carry calls of actions to and from one peer, and those that
    carry the answers."""

    __slots__ = (
        "__weakref__",
        "answered",
        "answers",
        "calls",
        "doubt",
        "numbers",
        "source",
        "unanswered",
    )

    def __init__(self, source: object, calls: Objects, answers: Objects) -> None:
        self.source = source
        self.calls = calls
        self.answers = answers
        self.numbers = itertools.count()
        self.answered = False  # whether the peer has answered a call
        self.doubt = ""  # why it may never do so
        # while an alarm waits for the peer's first answer: some calls, each as what was called, and
        # the Future or Batch that waits
        self.unanswered: list[tuple[object, weakref.ref[Future | Batch]]] = []

    @property
    def peer(self) -> str:
        """The peer as errors and log lines name it."""
        if isinstance(self.source, int):
            return f"rank {self.source}"
        return str(getattr(self.answers.heads, "peer", "the peer"))


class Options:
    """The options of calls that `with_options` sets.

    `timeout`: seconds until the future of a call fails with `Timeout`, or None. `on_sent()` is
    called when the call has been sent.
    """

    __slots__ = ("on_sent", "timeout")

    def __init__(
        self, timeout: float | None = None, on_sent: Callable[[], object] | None = None
    ) -> None:
        self.timeout = as_seconds(timeout)
        self.on_sent = on_sent


class Call(Called):
    """A message of a peer with a call, or with several calls, which `group` runs."""

    def __init__(
        self, peer: ActionPeer, number: int, resolve: Callable[[object], Registered]
    ) -> None:
        super().__init__(peer.source, resolve)
        self.peer = peer
        self.number = number
        self.group: CallGroup | None = None

    def withdraw(self, index: bytes) -> None:
        """Cancel the call, or, of several calls, the one with the `index` that the peer sent."""
        if self.group is None:
            self.cancel()
        elif index:
            self.group.cancel(int.from_bytes(index, "little"))
