"""The addresses of ranks, for the control thread, which must not wait for the launcher."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pscompy.control.event_loop import ControlThread
from pscompy.control.peer import Record


def when_address_is_known(
    thread: ControlThread, record: Record, then: Callable[[], object]
) -> None:
    """Call then() on the control thread, which is the calling one, once the peer's address is known
    or was not found. A launcher may take a minute to answer, so another thread asks it."""
    if record.address is not None or record.resolve is None:
        then()
        return

    def find_address() -> None:
        record.find_address()
        thread.call(then)

    asking = threading.Thread(target=find_address, name="pscompy-resolve", daemon=True)
    try:
        asking.start()
    except RuntimeError:  # no thread can be started
        find_address()
