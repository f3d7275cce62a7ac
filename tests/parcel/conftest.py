"""The fixtures of tests/session, for the tests of objects and actions."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_SESSION = Path(__file__).parents[1] / "session"
sys.path[:0] = [str(_SESSION), str(Path(__file__).parent)]
_spec = importlib.util.spec_from_file_location("session_fixtures", _SESSION / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fixtures)

key = _fixtures.key
transport = _fixtures.transport
idle = _fixtures.idle
start = _fixtures.start
open_session = _fixtures.open_session
connect = _fixtures.connect
link = _fixtures.link
shm = _fixtures.shm


@pytest.fixture
def serving(connect):
    """Returns a function that makes a link whose puppet runs actions."""

    from actions import serve

    def begin(transport="shm", **config):
        link = connect(transport, **config)
        link.peer(serve)
        return link

    return begin
