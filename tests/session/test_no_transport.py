"""Connecting fails fast; the operation that began it says why, however fast that was."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import pscompy
from pscompy.control.control import Control
from pscompy.control.record import Record


def hesitate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connecting fail before the operation that began it goes on."""
    begin = Control.begin_open

    def begin_and_wait(control: Control, record: Record, connection: pscompy.Connection) -> None:
        begin(control, record, connection)
        deadline = time.monotonic() + 60
        while connection.state is not pscompy.ConnectionState.LAZY:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    monkeypatch.setattr(Control, "begin_open", begin_and_wait)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("use", [lambda c: c.send(b""), lambda c: c.recv(), lambda c: c.probe()])
def test_the_first_use_says_why_there_is_no_connection(
    use: Callable[[pscompy.Connection], object], late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = {"SHM": 0, "TCP": 0}
    with pscompy.Session() as here, pscompy.Session(config=nothing) as there:
        with here.listen("127.0.0.1") as socket:
            connection = there.connect(socket.address)
            if late:
                hesitate(monkeypatch)
            with pytest.raises(pscompy.ConnectError) as caught:
                use(connection)
            reasons = caught.value.candidates
            assert reasons["shm"] == "excluded by PSP_SHM=0 (here)"
            assert reasons["tcp"] == "excluded by PSP_TCP=0 (here)"
