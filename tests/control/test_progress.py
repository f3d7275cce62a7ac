"""The control thread's view of a program that makes no progress."""

from __future__ import annotations

import threading
import time
from collections import deque

from pscompy.control import progress


def seen_from_a_thread(meanwhile, enough):
    """Whether ten answers in a row of another thread, among at most 2,000, satisfy `enough`, while
    this thread runs `meanwhile(ended)`. The first ones may come before it computes or sleeps."""
    last, seen, ended = deque(maxlen=10), [], threading.Event()

    def look():
        for _ in range(2000):
            last.append(progress._runnable())
            if len(last) == 10 and enough(sum(last)):
                seen.append(True)
                break
            time.sleep(0.001)
        ended.set()

    thread = threading.Thread(target=look)
    thread.start()
    meanwhile(ended)
    thread.join()
    return bool(seen)


def compute(ended):
    while not ended.is_set():
        pass


def test_a_program_that_computes_is_runnable():
    # At times it waits for the interpreter's lock.
    assert seen_from_a_thread(compute, lambda runnable: runnable > 5)


def test_a_program_that_sleeps_is_not():
    assert seen_from_a_thread(lambda ended: ended.wait(60), lambda runnable: runnable == 0)
