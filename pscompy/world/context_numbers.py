"""Context numbers: each communicator takes two, on which its ranks agree.

Threads of a rank may agree for several communicators at once, in another order than the threads of
other ranks. One thread of a rank at a time bids its lowest free number; a communicator gets the
highest number that its ranks bid, once all of them have bid.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from pscompy.api.c.guard import Lock
from pscompy.core import lib
from pscompy.errors import Unsupported

_LATER = 1 << 40  # the bid of a rank that bids a number to another communicator at the moment


class ContextNumbers:
    """The context numbers that one worker of this rank has given out. `open` opens two of them in
    the worker."""

    def __init__(self, open: Callable[[int], None]) -> None:
        self._open = open
        self._next: int = lib.PSC_CONTEXT_USER  # the lowest free number
        self._lock = Lock()
        self._calls = itertools.count()
        # The calls of `agree` whose ranks have all called it: the context number of the
        # communicator, and the number of the call.
        self._agreeing: set[tuple[int, int]] = set()
        self._bidding: tuple[int, int] | None = None  # the one among them that bids `_next`

    def take(self, number: int | None = None) -> int:
        """Reserve this context number and the following one; `number` is free, None means the
        lowest free one. Raises `Unsupported` if no numbers are left."""
        number = self._next if number is None else number
        if number + 1 >= lib.PSC_CONTEXT_END:
            raise Unsupported("there are no context numbers left for another communicator")
        # In ascending order: the worker drops messages of lower numbers that are not open.
        self._open(number)
        self._next = number + 2
        return number

    def agree(self, parent: int, maximum: Callable[[int], int], use: bool = True) -> int:
        """Return the first of two context numbers, the same on some ranks, that none of them uses
        yet. These ranks all call this method, after a message from each has reached each, directly
        or not. `parent` is the context number of the communicator that they are ranks of,
        `maximum` returns the highest of their numbers. With `use` false this rank does not reserve
        the numbers.

        Raises `Unsupported`, on all these ranks, if no numbers are left.
        """
        # All ranks have come, so no call below waits for a rank that is in another call, and the
        # call of the lowest parent comes first on every rank.
        call = parent, next(self._calls)
        with self._lock:
            self._agreeing.add(call)
        try:
            while (agreed := maximum(self._bid(call))) >= _LATER:
                self._withdraw(call)
            return self.take(agreed) if use else agreed
        finally:
            with self._lock:
                self._agreeing.discard(call)
            self._withdraw(call)

    def _bid(self, call: tuple[int, int]) -> int:
        """Return the lowest free number, which no other call takes before `_withdraw`, or
        _LATER."""
        with self._lock:
            if self._bidding is not None or call != min(self._agreeing):
                return _LATER
            self._bidding = call
            return self._next

    def _withdraw(self, call: tuple[int, int]) -> None:
        with self._lock:
            if self._bidding == call:
                self._bidding = None
