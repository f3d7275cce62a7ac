"""The process that becomes the ranks of a job, from inside: see `nursery`."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import sys

from pscompy.launch.environment import enter_rank, leave_nursery

REQUEST_MAX = 1 << 12
FILES = 4  # of a rank: the standard files, and its PMI socket
YES = b"yes"  # any other answer says why not


def serve(place: int, before: set[str]) -> None:
    """Load pscompy and fork a rank for each request; returns in the ranks alone.

    `place` is where sys.path holds the folder that made this process come here, `before` are the
    modules that any Python has loaded then. On the link to the
    launcher the folder of the program comes first. Each request is the process group and the
    variables of a rank, with its files; the answer is its process id. After the last request the
    ends are told.
    """
    link = _open_link(place)
    folder = os.fsdecode(link.recv(REQUEST_MAX))
    _load()
    if why := _objection(folder, {*sys.modules} - before):
        link.send(why.encode())
        os._exit(0)
    link.send(YES)
    gc.freeze()  # what is not touched stays shared
    ranks: dict[int, int] = {}
    while request := _receive(link):
        pid = os.fork()
        if pid == 0:
            link.close()
            _become(*request)
            return
        for file in request[1]:
            os.close(file)
        ranks[pid] = len(ranks)
        link.send(b"%d" % pid)
    _see_to_the_end(link, ranks)
    os._exit(0)


def _open_link(place: int) -> socket.socket:
    """And leave no trace of how this process was started."""
    sys.path_importer_cache.pop(sys.path.pop(place), None)
    return socket.socket(fileno=leave_nursery())


def _load() -> None:
    """All that a World uses."""
    from pscompy.discovery import registry
    from pscompy.world import world  # noqa: F401

    registry.preload()


def _objection(folder: str, loaded: set[str]) -> str:
    """Why the ranks cannot be forked from this process; empty: they can."""
    if _threads() > 1:
        return "what is installed starts threads when Python does"
    if hidden := _hidden(folder, loaded):
        return f"{folder} has a module that is named as one of them: {min(hidden)}"
    return ""


def _threads() -> int:
    """What a .pth file has started would be missing in the ranks."""
    with os.scandir("/proc/self/task") as tasks:
        return len([*tasks])


def _hidden(folder: str, loaded: set[str]) -> set[str]:
    """Those that the program would get from beside it instead."""
    tops = {name.partition(".")[0] for name in loaded}
    try:
        with os.scandir(folder) as found:
            return tops & {it.name.partition(".")[0] for it in found}
    except OSError:
        return set()


def _receive(link: socket.socket) -> tuple[list[str], list[int]] | None:
    """The words of a request, and its files."""
    words, files, _, _ = socket.recv_fds(link, REQUEST_MAX, FILES)
    if words and len(files) != FILES:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return (os.fsdecode(words).split("\0"), list(files)) if words else None


def _become(words: list[str], files: list[int]) -> None:
    """In the child: from here on it is the rank."""
    group, *variables = words
    os.setpgid(0, int(group))
    enter_rank(variables, files[3])
    for standard, file in enumerate(files[:3]):
        os.dup2(file, standard)
        os.close(file)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _see_to_the_end(link: socket.socket, ranks: dict[int, int]) -> None:
    """Tell the launcher, if it is still there, how each rank has ended."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):  # the first rank's, so that their readers see its end
        os.dup2(nothing, standard)
    while ranks:
        pid, status = os.wait()
        if pid in ranks:
            try:
                link.send(b"%d %d" % (ranks.pop(pid), status))
            except OSError:  # the guard ends the job
                continue
