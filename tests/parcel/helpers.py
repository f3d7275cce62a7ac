"""Actions that tests call; both sides import them from this module."""

from __future__ import annotations

import os
import threading
import time

import numpy as np

import pscompy

BEGUN = threading.Event()
GO = threading.Event()
SEEN: list[object] = []


@pscompy.action
def echo(*args, **kwargs):
    return args, kwargs


@pscompy.action
def double(field):
    return field * 2


@pscompy.action
def fails(kind, *args):
    raise kind(*args)


class Odd(Exception):
    """An exception that can be pickled but not unpickled."""

    def __init__(self, one, two):
        super().__init__(one)


@pscompy.action
def fails_oddly():
    raise Odd(1, 2)


@pscompy.action
def returns_a_lock():
    return threading.Lock()


@pscompy.action
def until_cancelled(deadline=60.0):
    BEGUN.set()
    end = time.monotonic() + deadline
    while not pscompy.current_action().cancelled:
        if time.monotonic() > end:
            return "not cancelled"
    SEEN.append("cancelled")
    return "cancelled"


@pscompy.action
def holds_a_thread():
    BEGUN.set()
    assert GO.wait(60)


@pscompy.action
def notes(what):
    SEEN.append(what)


@pscompy.action(inline=True)
def seen(clear=False):
    made = list(SEEN)
    if clear:
        SEEN.clear()
        BEGUN.clear()
        GO.clear()
    return made


@pscompy.action(name="where it runs", inline=True)
def where():
    return os.getpid(), threading.current_thread().name


@pscompy.action
def in_a_thread():
    return threading.current_thread().name


@pscompy.action(inline=True)
def begun():
    return BEGUN.is_set()


@pscompy.action(inline=True)
def go():
    GO.set()


@pscompy.action
def dies():
    os.kill(os.getpid(), 9)


def not_registered():
    return "called"


@pscompy.action
def mean(count):
    return float(np.random.default_rng(count).random(count).mean())
