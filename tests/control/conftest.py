"""What the tests of the control plane share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.names import A_KEY

sys.path.insert(0, str(Path(__file__).parent))  # their helpers


@pytest.fixture(autouse=True)
def _own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's key file is left alone."""
    monkeypatch.setenv("PSP_KEY", A_KEY)


@pytest.fixture
def session() -> Iterator[Callable[..., object]]:
    """Makes sessions that are closed after the test."""
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
    """An exception on the control thread ends nothing, so it must be looked for."""
    yield
    failed = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    assert [record.getMessage() for record in failed if record.exc_info] == []
