"""A peer is stopped just before it copies into our memory. That memory is not released until the
peer has finished its copy or its process has ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading

import pytest
from puppets import BOUND

import pscompy
from pscompy.core import lib
from tests.waiting import expect_soon

SHORT = 0.3
NBYTES = 4_000_000
STOPS = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

int stop_before_writing;

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long n_local,
                          const struct iovec *remote, unsigned long n_remote, unsigned long flags)
{
    if (stop_before_writing) {
        stop_before_writing = 0;
        raise(SIGSTOP);
    }
    return syscall(SYS_process_vm_writev, pid, local, n_local, remote, n_remote, flags);
}
"""


@pytest.fixture(scope="module")
def stops(tmp_path_factory):
    """Compiles a library whose process_vm_writev stops the process once when armed."""
    library = tmp_path_factory.mktemp("stops") / "libstops.so"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-"]
    subprocess.run(command, input=STOPS, text=True, check=True)
    return library


@pytest.fixture
def link(connect, stops, monkeypatch):
    def begin(**config):
        monkeypatch.setenv("LD_PRELOAD", str(stops))
        made = connect("shm", SHUTDOWN_TIMEOUT=1, **config)
        monkeypatch.delenv("LD_PRELOAD")
        return made

    return begin


def expect_stopped(link):
    def stopped():
        link.session.progress()
        with open(f"/proc/{link.peer.pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"

    expect_soon(stopped, "the peer's stop")


def fail(connection):
    """Fail the connection as the network does when it reports a live process as lost."""
    lib.psc_conn_fail(connection._record.handle, lib.PSC_ERR_PEER_LOST)


def continues(link):
    os.kill(link.peer.pid, signal.SIGCONT)


def is_killed(link):
    link.peer.kill()


ENDS = pytest.mark.parametrize("ends", [continues, is_killed])


def check_quiet(link, memory):
    """Check that nothing writes into `memory` any more."""
    memory[:] = bytes([1]) * len(memory)
    expect_soon(lambda: not link.peer.alive or link.peer.idle(), "the peer's rest")
    assert memory.count(1) == len(memory), "a late copy"


def arm(here):
    ctypes.c_int.in_dll(ctypes.CDLL(None), "stop_before_writing").value = 1


@ENDS
def test_a_region_is_closed_when_the_copy_has_ended(link, ends):
    link = link()
    memory = bytearray(1000)
    region = link.session.register(memory)
    link.peer(arm)
    link.peer.begin(lambda here, rkey: here.c.put(bytes([7]) * 1000, rkey), rkey=region.rkey)
    expect_stopped(link)
    closing = threading.Thread(target=region.close)
    closing.start()
    closing.join(SHORT)
    assert closing.is_alive(), "closed while the peer writes"
    assert memory == bytes(1000)
    ends(link)
    closing.join(BOUND)
    assert not closing.is_alive()
    assert memory.count(memory[0]) == 1000
    check_quiet(link, memory)


@ENDS
@pytest.mark.parametrize("scheme", ["put", "get"])
def test_a_receive_ends_when_the_copy_has_ended(link, scheme, ends):
    """Scheme put: the sender writes. Scheme get: the receiver has asked the sender to help by
    writing."""
    link = link(RNDV_SCHEME=scheme)
    memory = bytearray(NBYTES)
    receive = link.c.irecv(memory)
    link.peer(arm)
    link.peer.begin(lambda here, nbytes: here.c.send(bytes([7]) * nbytes), nbytes=NBYTES)
    expect_stopped(link)
    fail(link.c)
    assert link.c.state is pscompy.ConnectionState.FAILED
    with pytest.raises(pscompy.Timeout):
        receive.wait(SHORT)
    with pytest.raises(BufferError):
        memory.append(0)  # the request still exports the buffer
    ends(link)
    with pytest.raises(pscompy.PscomError):
        receive.wait(BOUND)
    check_quiet(link, memory)
    memory.append(0)


def test_a_session_that_is_closed_keeps_what_may_be_written_to(link):
    """Closing the session is bounded in time; the buffer is never used for anything else."""
    link = link(RNDV_SCHEME="put")
    memory, other = bytearray(NBYTES), bytearray(1000)
    region = link.session.register(other)
    receive = link.c.irecv(memory)
    link.peer(arm)
    link.peer.begin(lambda here, nbytes: here.c.send(bytes([7]) * nbytes), nbytes=NBYTES)
    expect_stopped(link)
    link.session.close()
    with pytest.raises(pscompy.Closed):
        receive.wait(BOUND)
    for buffer in memory, other:
        with pytest.raises(BufferError):
            buffer.append(0)
    region.close()
    continues(link)
    expect_soon(lambda: memory[0] == 7, "the late copy")


def test_a_session_that_is_closed_lets_go_of_what_nobody_writes_to(link):
    """Memory is released if the stopped peer is not in the middle of a copy."""
    link = link()
    memory, other = bytearray(1000), bytearray(1000)
    link.session.register(memory)
    receive = link.c.irecv(other)
    link.peer.send_signal(signal.SIGSTOP)
    expect_stopped(link)
    link.session.close()
    with pytest.raises(pscompy.Closed):
        receive.wait(BOUND)
    for buffer in memory, other:
        buffer.append(0)
