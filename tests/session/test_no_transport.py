"""Without a usable transport connecting fails fast, and the operation that began it raises the
reason, however early the failure was.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import pscompy
from pscompy.config.config import TransportWarning
from tests.program import program
from tests.waiting import expect_soon


def hesitate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connecting fail before the operation that began it continues."""
    begin = pscompy.Connection._begin_open

    def begin_and_wait(connection: pscompy.Connection) -> None:
        begin(connection)
        expect_soon(lambda: connection.state is pscompy.ConnectionState.LAZY)

    monkeypatch.setattr(pscompy.Connection, "_begin_open", begin_and_wait)


USES: dict[str, Callable[[pscompy.Connection], object]] = {
    "send": lambda c: c.send(b""),
    "recv": lambda c: c.recv(timeout=60),
    "recv into": lambda c: c.recv(bytearray(8), timeout=60),
    "irecv": lambda c: c.irecv().wait(timeout=60),
    "probe": lambda c: c.probe(timeout=60),
}


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
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


def test_a_transport_that_runs_everywhere_is_missed_aloud() -> None:
    """A warning says that shm cannot be used, because other transports replace it silently."""
    wrong = {"SHM_DIR": "/no such folder"}
    with pytest.warns(TransportWarning, match=r"^shm cannot be used: .*PSP_SHM_DIR.*PSP_SHM=0"):
        pscompy.Session(config=wrong).close()
    # pytest would turn a warning into an error here
    pscompy.Session(config={**wrong, "SHM": 0}).close()


def connect_to_oneself() -> None:
    import pscompy

    with pscompy.Session() as here, pscompy.Session() as there:
        connection = there.connect(here.listen("127.0.0.1").address)
        connection.open(60)
        print(connection.transport)


def test_without_proc_the_remedy_is_told() -> None:
    may = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    if may.returncode:
        pytest.skip(f"/proc cannot be taken away here: {may.stderr.strip()}")
    command = 'mount -t tmpfs none /proc && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, sys.executable, program(connect_to_oneself)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout == "tcp\n"
    assert "TransportWarning: shm cannot be used: /proc" in done.stderr
    assert "mount /proc" in done.stderr
