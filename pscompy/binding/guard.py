"""The lock of all rare steps of pscompy in Python, and what the calling thread may do.

The collector runs finalizers, and a signal its handler, between any two steps of a thread. Such
code may use pscompy, so what it calls must not wait for a lock whose holder may wait for this
thread. Two rules see to that:

* A thread that is `inside`, because it holds a `Lock`, waits for no other Lock but `guard`, which
  is taken last. What needs another one is put off by `when_outside`. `guard` protects only state
  that is whole between any two steps, because its own thread may take it again.
* A call that waits for a message, for the launcher or for the control thread raises RuntimeError
  unless its thread `may_wait`: it must not be inside, nor within a `NoWaiting`, as the control
  thread always is.
"""

from __future__ import annotations

import os
import threading

from pscompy.binding import _binding

Lock = _binding.Lock
NoWaiting = _binding.NoWaiting
inside = _binding.inside
may_wait = _binding.may_wait
require_waiting = _binding.require_waiting
when_outside = _binding.when_outside

guard = Lock()


def condition(lock: _binding.Lock) -> threading.Condition:
    """Return a Condition of this lock."""
    return threading.Condition(lock)  # type: ignore[arg-type]  # it does as an RLock


os.register_at_fork(after_in_child=guard._after_fork)
