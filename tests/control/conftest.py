"""Fixtures that the tests of the control plane share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.names import A_KEY

sys.path.insert(0, str(Path(__file__).parent))  # the helper modules of these tests


@pytest.fixture(autouse=True)
def _own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets PSP_KEY, so that the user's key file is neither read nor written."""
    monkeypatch.setenv("PSP_KEY", A_KEY)


@pytest.fixture
def session() -> Iterator[Callable[..., object]]:
    """Returns a function that opens sessions; all are closed after the test."""
    from pscompy import Session

    made: list[Session] = []

    def make(name: str | None = None, **config: object) -> Session:
        made.append(Session(name, config))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def _no_callback_failed(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Checks the log for exceptions on the control thread, because they end no call and no
    thread."""
    yield
    failed = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    assert [record.getMessage() for record in failed if record.exc_info] == []
