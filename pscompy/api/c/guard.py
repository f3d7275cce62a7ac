"""The lock of all rare steps of pscompy in Python, and what the calling thread may do.

The collector runs finalizers, and a signal its handler, between any two steps of a thread. Such
code may use pscompy, so what it calls must not wait for a lock whose holder may wait for this
thread. Two rules see to that:

* A thread that is `inside`, because it holds a `Lock`, waits for no other Lock but `guard`, which
  is taken last. What needs another one is put off by `when_outside`. The one exception: a thread
  that asks the launcher holds `Pmi1._turn` while it takes `Pmi1._state`, always in this order;
  finalizers and handlers that are inside do not ask the launcher. `guard` protects only state that
  is whole between any two steps, because its own thread may take it again.
* A call that waits for a message, for the launcher or for the control thread raises RuntimeError
  unless its thread `may_wait`: it must not be inside, nor within a `NoWaiting`, as the control
  thread always is.

Locks of other types do no harm: `Service._listening` and `Alarms._soon_set` are tried, and never
waited for; `Session._alive` and a pump's locks are waited for by calls that may wait; the one of
config/logs.py is reentrant, and its holder waits for nothing of pscompy.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import threading
from functools import partial
from operator import attrgetter

from pscompy.api.c import _binding

Lock = _binding.Lock
NoWaiting = _binding.NoWaiting
inside = _binding.inside
may_wait = _binding.may_wait
require_waiting = _binding.require_waiting
when_outside = _binding.when_outside

guard = Lock()


class _Condition(threading.Condition):
    """Enters and leaves its Lock by the functions in C, which these properties return before the
    Lock is taken. Between the Lock and the block there is no Python code, in which the handler of a
    signal could raise its exception."""

    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))


def condition(lock: _binding.Lock) -> threading.Condition:
    """Return a Condition of this lock."""
    return _Condition(lock)  # type: ignore[arg-type]  # it does as an RLock


class Limited:
    """A context manager that takes a Lock; gives False, and takes nothing, if another thread holds
    it for longer than `seconds`. It has no Python code for the reason of `_Condition`."""

    def __init__(self, lock: _binding.Lock, seconds: float) -> None:
        self._enter = partial(lock.acquire, timeout=seconds)
        self._exit = lock._exit_held

    __enter__ = property(attrgetter("_enter"))
    __exit__ = property(attrgetter("_exit"))


os.register_at_fork(after_in_child=guard._after_fork)


# seconds to wait for an import on another thread. Then the import statement decides: it waits on,
# or raises ImportError if its own thread has begun to import that module.
IMPORT_SECONDS = 1.0
_imported: set[str] = set()


def import_apart(*names: str) -> None:
    """Import modules on a thread of their own, before an import statement takes something of them.

    A signal handler that uses pscompy would find, on its own thread, a module that is half made; on
    another thread it waits until the module is complete. Finalizers run on any thread, so the
    garbage collector rests meanwhile.
    """
    missing = [name for name in names if name not in _imported]
    if not missing:
        return
    enabled = gc.isenabled()
    gc.disable()
    try:
        thread = threading.Thread(
            target=_import, args=(missing,), name="pscompy import", daemon=True
        )
        with contextlib.suppress(RuntimeError):  # no thread can be started: the caller imports it
            thread.start()
            thread.join(IMPORT_SECONDS)
    finally:
        if enabled:
            gc.enable()


def _import(names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):  # the caller's import statement raises it
            importlib.import_module(name)
            _imported.add(name)
