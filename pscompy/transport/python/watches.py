"""The descriptors that a pump waits for, with the events to wait for."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pscompy.transport.python.bridged_link import BridgedLink

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
PAUSE = 0.25  # most seconds for which a paused descriptor is not read


@dataclass(eq=False)
class Watch:
    """A descriptor, the function that reads it, and its link if it serves one link only."""

    fileobj: Any
    read: Callable[[], object]
    bridged: BridgedLink | None
    events: int = 0


class Watches:
    """A selector that waits for the events that the links need."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._watches: dict[Any, Watch] = {}
        self._serving: dict[BridgedLink, Watch] = {}
        self._paused: list[Watch] = []

    def add_command_fd(self, fd: int) -> None:
        """Add the bridge's own descriptor, for which `wait` yields None instead of a Watch."""
        self._selector.register(fd, READ)

    def add(self, fileobj: Any, read: Callable[[], object], bridged: BridgedLink | None) -> None:
        """Watch a descriptor. If it is watched already, its reader is replaced."""
        self.remove(fileobj)
        watch = self._watches[fileobj] = Watch(fileobj, read, bridged)
        if bridged is None:
            self._wait_for(watch, READ)
        else:
            self._serving[bridged] = watch
            self.update(bridged)

    def remove(self, fileobj: Any) -> None:
        """Stop watching the descriptor; does nothing if it was not watched."""
        watch = self._watches.pop(fileobj, None)
        if watch is None:
            return
        self._wait_for(watch, 0)
        if watch.bridged is not None:
            self._serving.pop(watch.bridged, None)

    def of(self, bridged: BridgedLink) -> Watch | None:
        """Return the Watch of the descriptor that serves this link only, or None."""
        return self._serving.get(bridged)

    def update(self, bridged: BridgedLink) -> None:
        """Watch for the events that the bridged needs now. A bridged is not read while it has a
        backlog, i.e. received frames that wait to be delivered."""
        watch = self._serving.get(bridged)
        if watch is not None:
            self._wait_for(watch, (not bridged.backlog and READ) | (bridged.blocked and WRITE))
        elif bridged.blocked:
            raise RuntimeError(
                "send took only a part of the frame, and no descriptor is watched for the rest"
            )

    def pause(self, watch: Watch) -> None:
        """Do not read a descriptor of no single link during the next `wait`."""
        self._wait_for(watch, 0)
        self._paused.append(watch)

    def wait(self) -> Iterator[tuple[Watch | None, int]]:
        """Sleep until a descriptor is ready. Yields each ready watch, unless it was removed
        meanwhile."""
        paused, self._paused = self._paused, []
        ready = self._selector.select(PAUSE if paused else None)
        for watch in paused:
            if self._watches.get(watch.fileobj) is watch:
                self._wait_for(watch, READ)
        for key, events in ready:
            found: Watch | None = key.data
            if found is None or self._watches.get(found.fileobj) is found:
                yield found, events

    def close(self) -> None:
        """Remove all watches and close the selector."""
        self._watches.clear()
        self._serving.clear()
        self._selector.close()

    def clear(self) -> None:
        """Remove all watches except the command descriptor."""
        for fileobj in list(self._watches):
            self.remove(fileobj)

    def _wait_for(self, watch: Watch, events: int) -> None:
        if events and watch.events:
            self._selector.modify(watch.fileobj, events, watch)
        elif events:
            self._selector.register(watch.fileobj, events, watch)
        elif watch.events:
            self._selector.unregister(watch.fileobj)
        watch.events = events
