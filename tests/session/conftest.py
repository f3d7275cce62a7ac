"""Fixtures that start real processes, each with a session, and connect them over each transport."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pscompy
from pscompy.testing.process import Far

sys.path.insert(0, str(Path(__file__).parent))
from puppets import ONLY, Connect, Link, Puppet, Start, attach, open_session_there, variables


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """Sets PSP_KEY to a random key that only the processes of this test share."""
    made = f"random:{secrets.token_hex(32)}"
    monkeypatch.setenv("PSP_KEY", made)
    return made


@pytest.fixture(params=["shm", "tcp"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def idle() -> Iterator[list[Puppet]]:
    """Puppets that have served tests of this module and may serve others."""
    puppets: list[Puppet] = []
    yield puppets
    for puppet in puppets:
        puppet.end()


@pytest.fixture
def start(idle: list[Puppet], key: str) -> Iterator[Start]:
    """Returns a function that starts puppets, or takes them from earlier tests:
    start(config, VARIABLE=...)."""
    puppets = []

    def begin(config: dict[str, object] | None = None, **environ: str) -> Puppet:
        wanted = variables(environ)
        puppet = next((it for it in idle if it.environ == wanted), None)
        if puppet is None:
            puppet = Puppet(**environ)
        else:
            idle.remove(puppet)
        puppets.append(puppet)
        puppet(open_session_there, config or {}, environ.get("PSP_KEY", key))
        return puppet

    yield begin
    for puppet in puppets:
        if puppet.renew():
            idle.append(puppet)
        else:
            puppet.end()


@pytest.fixture
def open_session() -> Iterator[Callable[..., pscompy.Session]]:
    """Returns a function that opens sessions in this process; all are closed after the test."""
    sessions: list[pscompy.Session] = []

    def begin(name: str | None = None, **config: object) -> pscompy.Session:
        sessions.append(pscompy.Session(name, config))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.close()


@pytest.fixture
def connect(start: Start, open_session: Callable[..., pscompy.Session]) -> Connect:
    """Returns a function that connects a puppet to a session of this process."""

    def begin(transport: str, **config: Any) -> Link:
        settings = {**ONLY[transport], "SHUTDOWN_TIMEOUT": 30, **config}
        session = open_session(**settings)
        sock = session.listen("127.0.0.1")
        return attach(session, sock, start(settings))

    return begin


@pytest.fixture
def link(connect: Connect, transport: str) -> Link:
    """A puppet that is connected to a session of this process."""
    return connect(transport)


@pytest.fixture
def shm(connect: Connect) -> Link:
    return connect("shm")


@pytest.fixture
def join(start: Start) -> Callable[[Link], Link]:
    """Returns a function that connects one more puppet to the session of a link."""

    def begin(link: Link, **config: Any) -> Link:
        settings = {**ONLY[link.c.transport], "SHUTDOWN_TIMEOUT": 30, **config}
        return attach(link.session, link.sock, start(settings))

    return begin


@pytest.fixture
def far(key: str) -> Iterator[Far]:
    far = Far()
    yield far
    far.close()
