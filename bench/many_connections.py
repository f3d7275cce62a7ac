"""Opens connections to one session of another process: FOLDER TRANSPORT COUNT.

It starts itself for the other process, with the word `accept` behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from pscompy import Session

_ENOUGH = 60.0  # seconds


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _open(address: str, transport: str, count: int) -> dict[str, float]:
    with Session(config={transport: 2}) as session:
        before = _descriptors()
        connections = [session.connect(address) for _ in range(count)]
        start = time.perf_counter()
        requests = [connection.iopen() for connection in connections]
        for request in requests:
            request.wait(_ENOUGH)
        seconds = time.perf_counter() - start
        assert {connection.transport.upper() for connection in connections} == {transport}
        return {"seconds": seconds, "descriptors": (_descriptors() - before) / count}


def _accept(transport: str, count: int) -> None:
    with Session(config={transport: 2}) as session, session.listen("127.0.0.1") as socket:
        print(socket.address, flush=True)
        connections = [socket.accept(_ENOUGH) for _ in range(count)]
        sys.stdin.read()
        del connections


def main(folder: str, transport: str, count: str, accept: str = "") -> None:
    if accept:
        _accept(transport, int(count))
        return
    command = [sys.executable, *sys.argv, "accept"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        figures = _open(other.stdout.readline().strip(), transport, int(count))
        assert other.stdin is not None
        other.stdin.close()
    (Path(folder) / "0").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
