"""Our C calls what a signal may interrupt by PSC_RESTART; this list has the exceptions, and why."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("pscompy", "softni", "gateway", "mpi", "examples/transport_c/src")
CALLS = (
    "poll|ppoll|select|epoll_wait|read|readv|pread|write|writev|pwrite|recv|recvmsg|recvfrom|send|sendmsg"
    "|sendmmsg|sendto|connect|accept|accept4|process_vm_readv|process_vm_writev|open|openat|ftruncate"
    "|fallocate|flock|nanosleep|syscall"
)
CALL = re.compile(rf"(?<![\w>.*])(?:{CALLS})\((?!\))")
COMMENT = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
# file -> calls of it that stand alone, and why
ALONE = {
    "pscompy/api/c/worker_end.c": ("nanosleep", "in a loop"),
    "pscompy/core/api_memory.c": ("nanosleep", "in a loop"),
    "pscompy/core/lifetime.c": ("epoll_wait", "in a loop with a deadline"),
    "pscompy/core/progress/background.c": ("ppoll epoll_wait", "a signal is a reason to look"),
    "pscompy/core/progress/wait.c": ("epoll_wait", "the caller runs the handlers of Python"),
    "softni/pscompy_softni/api_wait.c": ("ppoll", "it returns PTL_INTERRUPTED"),
    "softni/pscompy_softni/interface.c": ("poll", "in a loop with a deadline"),
    "softni/pscompy_softni/peer.c": ("connect", "of a datagram socket"),
    "softni/pscompy_softni/thread.c": ("epoll_wait", "all signals are blocked"),
    "pscompy/plugins/shm/connect.c": ("connect", "tried again by the next tick"),
    "pscompy/plugins/shm/socket.c": ("syscall", "pidfd_open does not wait"),
    "pscompy/plugins/shm/listen.c": ("connect", "a folder that stays is swept later"),
    "pscompy/plugins/shm/source.c": ("syscall", "membarrier does not wait"),
    "pscompy/plugins/tcp/dial.c": ("connect", "it goes on after EINTR"),
    "pscompy/plugins/tcp/send.c": ("send sendmsg", "the caller restarts both"),
    "pscompy/transport/kit/lock.h": ("syscall", "futexes, whose callers look again"),
    "mpi/pscompy_mpi/src/environment.c": ("nanosleep", "in a loop"),
    "mpi/pscompy_mpi/src/message.c": ("send recv", "functions of this file, of messages of MPI"),
    "examples/transport_c/src/pscompy_stream/connect.c": ("connect", "of a Unix socket"),
}


def lone_calls(text: str) -> set[str]:
    """The calls in a file that are not the argument of PSC_RESTART."""
    text = COMMENT.sub("", text)
    found = ((match.start(), match[0][:-1]) for match in CALL.finditer(text))
    before = ((text[:at].rstrip(), name) for at, name in found)
    return {name for text, name in before if not re.search(r"PSC_RESTART\((?:\(\w+\))?$", text)}


def sources() -> list[Path]:
    names = ["git", "ls-files", *(f"{it}/*.[ch]" for it in FOLDERS)]
    listed = subprocess.run(names, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split()]


def test_what_a_signal_may_interrupt_is_restarted() -> None:
    found = {str(it.relative_to(ROOT)): lone_calls(it.read_text()) for it in sources()}
    assert len(found) > 200
    assert {k: v for k, v in found.items() if v} == {k: set(v[0].split()) for k, v in ALONE.items()}


def test_a_call_alone_is_found() -> None:
    assert lone_calls("n = PSC_RESTART(\n    read(fd, a, b)); m = poll(f, 1, 0);") == {"poll"}
    assert lone_calls("/* read(1) */ x = iface->open(a); fd_send(b);") == set()
