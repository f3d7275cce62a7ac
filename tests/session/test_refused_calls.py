"""System calls that a sandbox refuses: the error names the call, or another transport is used."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import subprocess
import sys

import numpy  # noqa: F401 (the programs below import it before calls are refused)
import pytest

import pscompy
from tests.program import program

# numbers of system calls: eventfd2 and memfd_create, by machine
CALLS = {
    "x86_64": {"eventfd": 290, "memfd": 319},
    "aarch64": {"eventfd": 19, "memfd": 279},
}

pytestmark = pytest.mark.skipif(
    platform.machine() not in CALLS, reason="the numbers of this machine's system calls are unknown"
)


def refuse(call: str, error: int) -> None:
    """Have the kernel answer `call` of this process with `error`, by a filter as sandboxes have
    them."""
    load, equal, answer = 0x20, 0x15, 0x06  # instructions of a filter: seccomp(2)
    number = CALLS[platform.machine()][call]
    steps = [(load, 0, 0, 0), (equal, 0, 1, number), (answer, 0, 0, 0x50000 | error)]
    steps.append((answer, 0, 0, 0x7FFF0000))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *it) for it in steps))
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, filter_) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def opens_a_session(call: str, error: int) -> None:
    vars(pscompy.Session), vars(pscompy.Unsupported)  # imported before calls are refused
    refuse(call, error)
    for _ in range(3):
        try:
            pscompy.Session()
        except (pscompy.Unsupported, pscompy.OutOfDescriptors) as raised:
            print(f"{type(raised).__name__}: {raised}; {len(os.listdir('/proc/self/fd'))} open")


def sends_to_itself(call: str, error: int) -> None:
    refuse(call, error)
    with pscompy.World(config={"PORTALS": 0}) as world:
        request = world.isend(world.empty(1 << 20, "u1"), dest=0)
        assert len(world.recv(timeout=60)) == 1 << 20
        request.wait(60)
        print(world.session.transports["shm"])


def run(main: object, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program(main, *arguments)],  # type: ignore[arg-type]
        capture_output=True,
        text=True,
        timeout=250,
    )


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
def test_a_session_without_eventfd_names_it(error):
    done = run(opens_a_session, "eventfd", error)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    assert len(set(lines)) == 1  # nothing stays open
    assert lines[0].startswith(
        f"Unsupported: a session cannot be opened: eventfd is refused here ({os.strerror(error)})"
    )


def test_a_session_without_a_descriptor_for_eventfd_says_that():
    lines = run(opens_a_session, "eventfd", errno.EMFILE).stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["OutOfDescriptors"] * 3


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS, errno.ENOMEM])
def test_without_memory_files_another_transport_is_used(error):
    """The warning names the call; it does not speak of descriptors."""
    done = run(sends_to_itself, "memfd", error)
    reason = f"cannot share memory (memfd_create, mmap): {os.strerror(error)}"
    assert done.stdout == f"{reason}\n", done.stderr
    assert f"TransportWarning: shm cannot be used: {reason} (PSP_SHM=0 does" in done.stderr
