"""Helpers of the tests of actions; the actions themselves are in `helpers`."""

from __future__ import annotations

import contextlib
import importlib
import threading

import helpers
from puppets import BOUND

import pscompy


def serve(here):
    """Run the actions of `helpers` in a thread, until the session is closed."""

    def run():
        with contextlib.suppress(pscompy.Closed):
            here.session.serve()

    importlib.import_module("helpers")
    threading.Thread(target=run, daemon=True).start()


def release(here):
    """Let `helpers.holds_a_thread` end."""
    helpers.GO.set()


def ended(future):
    """The exception of the future, or None."""
    return future.exception(BOUND)
