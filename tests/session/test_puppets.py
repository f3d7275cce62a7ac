"""A puppet serves another test if its process is as it began, and only then."""

from __future__ import annotations

import gc
import os
import resource
import signal
import threading

import pytest
from puppets import BOUND, Puppet, open_session_there


def limit_descriptors(here):
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


CHANGES = {
    "a thread": lambda here: threading.Thread(target=threading.Event().wait, daemon=True).start(),
    "a descriptor": lambda here: os.dup(0),
    "a handler": lambda here: signal.signal(signal.SIGUSR1, signal.SIG_IGN) and None,
    "a limit": limit_descriptors,
    "no collector": lambda here: gc.disable(),
    "a call that does not end": lambda here: os.kill(os.getpid(), signal.SIGSTOP),
}


@pytest.fixture
def puppet():
    made = Puppet()
    made(open_session_there, {})
    yield made
    made.end()


def test_after_a_test_it_has_no_session_and_nothing_of_the_test(puppet):
    puppet(lambda here: setattr(here, "kept", 1))
    assert puppet.renew(BOUND)
    assert puppet(lambda here: (here.session, hasattr(here, "kept"))) == (None, False)
    puppet(open_session_there, {})
    assert puppet.renew(BOUND)


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_test_leaves_ends_it(puppet, change):
    puppet.begin(CHANGES[change])
    if change != "a call that does not end":
        puppet.result()
    assert not puppet.renew(BOUND)
