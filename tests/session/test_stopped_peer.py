"""A peer is stopped just before it copies into our memory. That memory is not released until the
peer has finished its copy or its process has ended.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import threading

import pytest
from puppets import BOUND, check_echo

import pscompy
from pscompy.core import lib
from tests.waiting import asleep, expect_soon, state_of

SHORT = 0.3
NBYTES = 4_000_000
STOPS = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

int stop_before_writing, stop_before_reading, refuse_with;

static long copy(long number, int *stop, pid_t pid, const struct iovec *local,
                 unsigned long n_local, const struct iovec *remote, unsigned long n_remote,
                 unsigned long flags)
{
    if (*stop) {
        *stop = 0;
        raise(SIGSTOP);
    }
    if (refuse_with) {
        errno = refuse_with;
        refuse_with = 0;
        return -1;
    }
    return syscall(number, pid, local, n_local, remote, n_remote, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long n_local,
                          const struct iovec *remote, unsigned long n_remote, unsigned long flags)
{
    return copy(SYS_process_vm_writev, &stop_before_writing, pid, local, n_local, remote, n_remote,
                flags);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n_local,
                         const struct iovec *remote, unsigned long n_remote, unsigned long flags)
{
    return copy(SYS_process_vm_readv, &stop_before_reading, pid, local, n_local, remote, n_remote,
                flags);
}
"""


@pytest.fixture(scope="module")
def stops(tmp_path_factory):
    """Compiles a library whose cross-memory attach, once when armed, stops the process or is
    refused."""
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
    connection._record.conn.fail(lib.PSC_ERR_PEER_LOST)


def continues(link):
    os.kill(link.peer.pid, signal.SIGCONT)


def is_killed(link):
    link.peer.kill()


# how a long message gets into its receive
WAYS = [{"RNDV_SCHEME": "put"}, {"RNDV_SCHEME": "get"}, {"TUPLEQ": 1}]
IDS = ["put", "get", "seen"]
ENDS = pytest.mark.parametrize("ends", [continues, is_killed])


def check_quiet(link, memory):
    """Check that nothing writes into `memory` any more."""
    memory[:] = bytes([1]) * len(memory)
    expect_soon(lambda: not link.peer.alive or link.peer.idle(), "the peer's rest")
    assert memory.count(1) == len(memory), "a late copy"


def arm(here, name="stop_before_writing", value=1):
    ctypes.c_int.in_dll(ctypes.CDLL(None), name).value = value


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
@pytest.mark.parametrize("config", WAYS, ids=IDS)
def test_a_receive_ends_when_the_copy_has_ended(link, config, ends):
    """Put: the sender writes. Get: the receiver has asked the sender to help by writing. Seen: the
    sender has taken the receive."""
    link = link(**config)
    memory = bytearray(NBYTES)
    receive = link.c.irecv(memory)
    link.peer(arm)
    link.peer.begin(lambda here, nbytes: here.c.send(bytes([7]) * nbytes), nbytes=NBYTES)
    expect_stopped(link)
    link.session.progress()
    assert link.c.stats["tuple_taken"] == config.get("TUPLEQ", 0)
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


@pytest.mark.parametrize("config", WAYS[::2], ids=IDS[::2])
def test_a_session_that_is_closed_keeps_what_may_be_written_to(link, config):
    """Closing the session is bounded in time; the buffer is never used for anything else."""
    link = link(**config)
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


# ---- receives that the peer sees ------------------------------------------------


def send(here):
    here.c.send(bytes([7]) * NBYTES)


def show(here):
    here.memory = bytearray(NBYTES)
    here.request = here.c.irecv(here.memory)


def receive(here):
    here.request.wait()
    return here.memory.count(7)


def wait_asleep(request):
    """Wait for the request in a thread; returns the thread when it is blocked in the kernel."""
    thread = threading.Thread(target=request.wait, args=(BOUND,))
    thread.start()
    expect_soon(lambda: asleep(thread.native_id), "sleep beside a stopped peer")
    return thread


def test_a_receiver_sleeps_beside_a_stopped_sender(link):
    link = link(TUPLEQ=1)
    memory = bytearray(NBYTES)
    request = link.c.irecv(memory)
    link.peer(arm)
    link.peer.begin(send)
    expect_stopped(link)
    thread = wait_asleep(request)
    assert link.c.stats["tuple_taken"] == 1
    continues(link)
    thread.join(BOUND)
    assert request.test()
    assert memory.count(7) == NBYTES


def test_a_receiver_stops_amid_its_copy(link, join):
    """The sender's other messages are sent, and a thread that waits for this one sleeps."""
    link = link(TUPLEQ=1)
    other = join(link)
    link.peer(show)
    link.peer(arm, "stop_before_reading")
    request = link.c.isend(bytes([7]) * NBYTES)
    link.peer.begin(receive)
    expect_soon(lambda: state_of(link.peer.pid) == "T", "the peer's stop")
    check_echo(other)
    with pytest.raises(pscompy.Timeout):
        request.wait(SHORT)
    thread = wait_asleep(request)
    continues(link)
    thread.join(BOUND)
    assert request.test()
    assert link.c.stats["tuple_placed"] == 1
    assert link.peer.result() == NBYTES


@pytest.mark.parametrize("refused", ["sender", "receiver"])
def test_cross_memory_attach_is_refused_meanwhile(link, refused):
    """A message whose receive was taken fails on both sides; the connection remains."""
    link = link(TUPLEQ=1)
    memory = bytearray(NBYTES)
    link.peer(arm, "refuse_with", errno.EPERM)
    if refused == "sender":
        request = link.c.irecv(memory)
        link.peer.begin(send)
    else:
        link.peer(show)
        request = link.c.isend(memory)
        link.peer.begin(receive)
    with pytest.raises(pscompy.TransportError):
        link.peer.result()
    with pytest.raises(pscompy.TransportError):
        request.wait(BOUND)
    memory.append(0)
    check_echo(link)
