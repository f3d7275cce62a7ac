"""A storm of signals in every Python process that finds this folder in PYTHONPATH: each thread gets
a signal every 100 us, whose handler only counts.

PSCOMPY_TEST_STORM names the file to which a process adds its number of handled signals when it
ends. A forked child gets a storm of its own; a program that a process runs has none, because timers
end with exec().
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import threading

STEP_US = int(os.environ.get("PSCOMPY_TEST_STORM_US", "100"))
NUMBER = signal.SIGPROF
CLOCK_MONOTONIC, SIGEV_THREAD_ID = 1, 4

system = ctypes.CDLL(None, use_errno=True)
handled = 0
timers: set[int] = set()  # the timers of all threads of this process


class Event(ctypes.Structure):
    """`struct sigevent` of Linux."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_int * 11),
    )


def begin() -> int:
    """Start a timer for the calling thread; returns the timer."""
    event = Event(number=NUMBER, notify=SIGEV_THREAD_ID, thread=threading.get_native_id())
    made = ctypes.c_void_p()
    steps = (ctypes.c_long * 4)(0, STEP_US * 1000, 0, STEP_US * 1000)
    if system.timer_create(CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(made)) != 0:
        raise OSError(ctypes.get_errno(), "timer_create")
    timer = made.value or 0
    timers.add(timer)
    if system.timer_settime(made, 0, steps, None) != 0:
        raise OSError(ctypes.get_errno(), "timer_settime")
    return timer


def end(timer: int) -> None:
    if timer in timers:
        timers.remove(timer)
        system.timer_delete(ctypes.c_void_p(timer))


def count(number: int, frame: object) -> None:
    global handled
    handled += 1


def begin_in_child() -> None:
    global handled
    handled = 0
    timers.clear()
    begin()


def run_thread(thread: threading.Thread) -> None:
    timer = begin()
    try:
        run_thread_calmly(thread)
    finally:
        end(timer)


def report() -> None:
    """End the storm before Python takes back its handlers, and note how many signals it had."""
    for timer in list(timers):
        end(timer)
    with open(os.environ["PSCOMPY_TEST_STORM"], "a") as counts:
        counts.write(f"{handled}\n")


if "PSCOMPY_TEST_STORM" in os.environ:
    run_thread_calmly = threading.Thread._bootstrap_inner
    threading.Thread._bootstrap_inner = run_thread
    atexit.register(report)  # as the first one, so that it runs as the last one
    signal.signal(NUMBER, count)
    os.register_at_fork(after_in_child=begin_in_child)
    begin()
