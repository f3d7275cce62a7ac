"""Doubts: the time limits of calls, and the reasons why a peer may never answer.

A peer that does not accept calls answers nothing. If its first answer takes longer than DOUBT, the
log says so, and so do the errors of calls that end without an answer.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pscompy.api.c.guard import when_outside
from pscompy.api.dropped import while_alive
from pscompy.config import logs
from pscompy.errors import PscomError, Timeout
from pscompy.parcel.action import named

if TYPE_CHECKING:
    from pscompy.parcel.alarms import Alarms
    from pscompy.parcel.call_group import Batch
    from pscompy.parcel.calls import ActionPeer
    from pscompy.parcel.future import Future

# seconds without an answer after which the log says why a peer that has never answered may not
DOUBT = 1.0
# number of calls of a peer that has not answered yet, the first ones and the latest, of which one
# must still wait for the log to say so
WATCHED_MAX = 8


class Presence(Protocol):
    """Says which peers accept calls of actions."""

    def announce(self) -> None:
        """Let the peers know that this process accepts calls."""

    def accepts(self, source: Any) -> bool | None:
        """Return whether a peer accepts calls, None if that is not known."""


class Doubts:
    """Watches the calls that one service has sent. `presence` knows which peers accept calls; None
    if that is not known."""

    alarms: Alarms  # those of the driver, once the service has begun

    def __init__(self, presence: Presence | None) -> None:
        self._presence = presence

    def announce(self) -> None:
        """Let the peers know that this process accepts calls."""
        if self._presence is not None:
            _in_background(self._presence.announce)

    def limit(self, seconds: float, links: ActionPeer, target: object, future: Future) -> None:
        """Have the future fail in that many seconds, unless it is done by then.

        The alarm stays in its queue after the future has ended, so it refers to the session
        weakly."""
        waits = weakref.ref(future)
        late = partial(_time_out, weakref.ref(links), target, waits, seconds)
        self._set_alarm(seconds, partial(_over, waits), late)

    def _set_alarm(
        self, seconds: float, over: Callable[[], bool], act: Callable[[], object]
    ) -> None:
        """Set an alarm; if this thread has put off `start`, after that."""
        when_outside(lambda: self.alarms.set(seconds, over, act))

    def expect(self, links: ActionPeer, target: object, waits: Future | Batch) -> None:
        """If the peer has never answered, and does not within a second, look for the reason. One
        alarm serves all calls of that second."""
        if links.answered or links.doubt:
            return
        unanswered = links.unanswered
        first = not unanswered
        del unanswered[WATCHED_MAX - 1 :]
        unanswered.append((target, weakref.ref(waits)))
        if first:
            reference = weakref.ref(links)
            act = partial(_in_background, partial(while_alive(self._doubt), reference))
            self._set_alarm(DOUBT, partial(_answered, reference), act)

    def _doubt(self, reference: weakref.ref[ActionPeer]) -> None:
        """Note and log once that the peer does not accept calls, or may not."""
        links = reference()
        if links is None:
            return
        unanswered, links.unanswered = links.unanswered, []
        targets = [target for target, waits in unanswered if not _over(waits)]
        if not targets:
            return
        serves = self._presence.accepts(links.source) if self._presence is not None else None
        if links.answered:
            return
        if serves is None:
            links.doubt = f"{links.peer} has not answered yet: has it called serve()?"
        elif not serves:
            links.doubt = f"{links.peer} has not called serve()"
        if links.doubt:
            logs.notice("action %s waits: %s", label_of(targets[0]), links.doubt)


def _over(reference: weakref.ref[Any]) -> bool:
    waits = reference()
    return waits is None or waits.done()


def _answered(reference: weakref.ref[ActionPeer]) -> bool:
    links = reference()
    return links is None or links.answered


def _in_background(function: Callable[[], object]) -> None:
    """Call a function that asks the launcher, which may take a minute, on a thread of its own: the
    time limits of actions need the driver's."""
    try:
        threading.Thread(target=function, name="pscompy presence", daemon=True).start()
    except RuntimeError:  # no thread can be started
        function()


def _time_out(
    its_links: weakref.ref[ActionPeer], target: object, waits: weakref.ref[Future], seconds: float
) -> None:
    links, future = its_links(), waits()
    if links is None or future is None:
        return
    text = f"action {label_of(target)} of {links.peer}: not ended within {seconds:g} s"
    error = explained(Timeout(text, peer=links.peer), links)
    if future.finish(None, error):
        future.withdraw()


def explained(error: BaseException, links: ActionPeer) -> BaseException:
    """Add to the text of a local error why the peer may not have answered."""
    if isinstance(error, PscomError) and links.doubt and not links.answered:
        error.args = (f"{error}; {links.doubt}",)
    return error


def label_of(target: object) -> str:
    """Return the name of the action that a call names."""
    return target if isinstance(target, str) else named(target)  # type: ignore[arg-type]
