"""How much Python one connect over tcp takes: the calls, and the files, in both control threads.

    python -m tests.connect_calls [--files]

Counts from the first `isend` of a lazy connection until both sides are up and idle. What a session
imports at its first connect is included.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import pscompy

HOME = f"{Path(pscompy.__file__).parent}/"

IDLE_SECONDS = 0.1  # for the control threads to finish after both sides are up

counted: Counter[CodeType] = Counter()
counting = False


def count(frame: FrameType, event: str, _: object) -> None:
    """Count a call; in short, because the control threads poll more often the longer it takes."""
    if counting and event == "call":
        counted[frame.f_code] += 1


def by_file() -> Counter[str]:
    """Return the calls of functions of pscompy by their files."""
    files: Counter[str] = Counter()
    for code, calls in counted.items():
        if code.co_filename.startswith(HOME):
            files[code.co_filename.removeprefix(HOME)] += calls
    return files


def connect(here: pscompy.Session, address: str, sock: pscompy.Socket) -> None:
    global counting
    connection = here.connect(address)
    counting = True
    sent = connection.isend(b"hello")
    assert sock.accept().recv() == b"hello"
    sent.wait()
    time.sleep(IDLE_SECONDS)
    counting = False


if __name__ == "__main__":
    threading.setprofile(count)  # for the control threads, which begin below
    only = {"SHM": 0, "RETRY": 0}
    with pscompy.Session("a", only) as a, pscompy.Session("b", only) as b:
        with a.listen("127.0.0.1") as sock:
            connect(b, sock.address, sock)
    files = by_file()
    print(f"{files.total()} Python calls in {len(files)} files")
    if "--files" in sys.argv:
        print(*(f"{calls:6} {file}" for file, calls in files.most_common()), sep="\n")
