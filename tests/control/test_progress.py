"""The control thread's view of a program that makes no progress."""

from __future__ import annotations

import threading
import time

from pscompy.control import progress


def seen_from_a_thread(meanwhile):
    """The answers of another thread, while this one runs `meanwhile(ended)`."""
    answers, ended = [], threading.Event()

    def look():
        for _ in range(20):
            answers.append(progress._runnable())
            time.sleep(0.001)
        ended.set()

    thread = threading.Thread(target=look)
    thread.start()
    meanwhile(ended)
    thread.join()
    return answers


def compute(ended):
    while not ended.is_set():
        pass


def test_a_program_that_computes_is_runnable():
    assert sum(seen_from_a_thread(compute)) > 10  # at times it waits for the interpreter's lock


def test_a_program_that_sleeps_is_not():
    assert sum(seen_from_a_thread(lambda ended: ended.wait(60))) < 10
