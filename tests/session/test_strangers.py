"""Strangers at a session's ports: wrong keys, scans, silence, other protocols, broken frames.
Each gets an answer or is disconnected in bounded time, and good peers are served meanwhile.
"""

from __future__ import annotations

import logging
import os
import re
import socket

import pytest
from puppets import BOUND, ONLY, check_echo, listen, own_descriptors

import pscompy
from tests.names import ANOTHER_KEY
from tests.waiting import expect_soon

HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
TLS = bytes.fromhex("16030100a5010000a10303") + bytes(160)


def port_of(address):
    return int(re.match(r"psp://127\.0\.0\.1:(\d+)/", address)[1])


def knock(port, words=b""):
    """Connect to `port` as a stranger and send `words`."""
    stranger = socket.create_connection(("127.0.0.1", port), timeout=BOUND)
    stranger.sendall(words)
    return stranger


def heard_until_end(stranger):
    """All bytes that the stranger receives until it is disconnected."""
    stranger.settimeout(BOUND)
    heard = b""
    try:
        while data := stranger.recv(4096):
            heard += data
    except ConnectionResetError:
        pass
    return heard


# ---- a program that is no session, where we connect ----


def test_a_listener_that_says_nothing_is_named():
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pscompy.Session(config={"GUARD_TIMEOUT": "0.3"}) as session,
    ):
        port = silent.getsockname()[1]
        with pytest.raises(pscompy.ConnectError) as caught:
            session.connect(f"127.0.0.1:{port}").open(BOUND)
    assert f"a program listens at 127.0.0.1:{port}, but did not answer" in str(caught.value)
    assert "PSP_GUARD_TIMEOUT" in str(caught.value)


# ---- keys ----


def test_a_wrong_key_where_we_connect(link, start):
    peer = start(ONLY[link.c.transport], PSP_KEY=ANOTHER_KEY)
    address = peer(listen)
    with pytest.raises(pscompy.AuthError) as caught:
        link.session.connect(address).open(BOUND)
    assert "key" in str(caught.value)
    assert os.environ["PSP_KEY"] not in str(caught.value)
    with pytest.raises(pscompy.Timeout):
        peer(lambda here: here.sock.accept(0.1))
    check_echo(link)


def test_a_wrong_key_where_they_connect(link, start):
    peer = start(ONLY[link.c.transport], PSP_KEY=ANOTHER_KEY)
    address = link.sock.address
    for use in (
        lambda c: c.open(60),
        lambda c: c.send(b"x"),
        lambda c: c.recv(),
        lambda c: c.irecv().wait(60),
        lambda c: c.probe(),
    ):
        with pytest.raises(pscompy.AuthError, match="key"):
            peer(lambda here, use: use(here.session.connect(address)), use)
    with pytest.raises(pscompy.Timeout):
        link.sock.accept(timeout=0.1)
    check_echo(link)


def keep_log(here):
    here.lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            here.lines.append(record.getMessage())

    logging.getLogger("pscompy").addHandler(Keep())


def test_both_sides_are_told(start, caplog):
    """The listening side logs which peer has another key."""
    server = start({"DEBUG_OUT": ""}, PSP_DEBUG="3")
    server(keep_log)
    address = server(listen)
    client = start({}, PSP_KEY=ANOTHER_KEY)
    with pytest.raises(pscompy.AuthError):
        client(lambda here, address: here.session.connect(address).open(60), address=address)
    expect_soon(lambda: any("key" in line for line in server(lambda here: here.lines)))


# ---- strangers at the bootstrap port ----

WORDS = {
    "nothing": b"",
    "one byte": b"p",
    "http": HTTP,
    "tls": TLS,
    "zeros": bytes(100_000),
    "ones": b"\xff" * 100_000,
    "half a greeting": b"PSP" + bytes(5),
}


@pytest.mark.parametrize("words", WORDS)
def test_a_stranger_that_leaves(link, words):
    """Strangers connect, send `words` and close."""
    before = own_descriptors()
    port = port_of(link.sock.address)
    for _ in range(20):
        try:
            knock(port, WORDS[words]).close()
        except (ConnectionResetError, BrokenPipeError):
            continue
    expect_soon(lambda: own_descriptors() <= before)
    check_echo(link)


@pytest.mark.parametrize("words", ["http", "tls", "zeros", "ones"])
def test_a_stranger_that_stays_is_dropped(link, words):
    try:
        stranger = knock(port_of(link.sock.address), WORDS[words])
    except (ConnectionResetError, BrokenPipeError):
        return
    with stranger:
        assert len(heard_until_end(stranger)) < 1000
    check_echo(link)


def test_a_silent_stranger_is_dropped(link):
    """A stranger that never proves the key is disconnected after a bounded time."""
    with knock(port_of(link.sock.address)) as stranger:
        heard_until_end(stranger)
    check_echo(link)


def greeting_of(session):
    """The first bytes that this session sends when it connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        c = session.connect(f"psp://127.0.0.1:{server.getsockname()[1]}/nobody")
        c.iopen()
        listening, _ = server.accept()
        with listening:
            listening.settimeout(BOUND)
            greeting = listening.recv(4096)
        c.close()
    return greeting


def test_spoiled_words(link):
    """A real greeting with each of its bytes altered in turn, and cut off after each."""
    port = port_of(link.sock.address)
    greeting = greeting_of(link.session)
    assert greeting
    for i in range(len(greeting)):
        spoiled = bytearray(greeting)
        spoiled[i] ^= 0xFF
        with knock(port, bytes(spoiled) + os.urandom(300)) as stranger:
            assert len(heard_until_end(stranger)) < 1000
        knock(port, greeting[:i]).close()
    check_echo(link)


def echo_back(stranger):
    """Send all bytes back that arrive, until the end."""
    stranger.settimeout(BOUND)
    try:
        while data := stranger.recv(4096):
            stranger.sendall(data)
    except (ConnectionResetError, BrokenPipeError):
        return


def test_reflection(link):
    """Our own bytes, sent back, prove no key, whether we connect or listen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        c = link.session.connect(f"psp://127.0.0.1:{server.getsockname()[1]}")
        request = c.iopen()
        stranger, _ = server.accept()
        with stranger:
            echo_back(stranger)
    with pytest.raises(pscompy.ConnectError):
        request.wait(BOUND)
    with knock(port_of(link.sock.address), greeting_of(link.session)) as stranger:
        echo_back(stranger)
    with pytest.raises(pscompy.Timeout):
        link.sock.accept(timeout=0.1)
    check_echo(link)


def test_a_thing_that_speaks_http_answers_our_connect(link):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        c = link.session.connect(f"psp://127.0.0.1:{port}/nobody")
        request = c.iopen()
        conn, _ = server.accept()
        with conn:
            conn.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            with pytest.raises(pscompy.ConnectError):
                request.wait(BOUND)
    check_echo(link)


def test_a_listener_that_is_silent(connect, transport):
    """A silent listener may be a busy peer, so only the caller limits the time; the listener's
    end is noticed."""
    link = connect(transport, RETRY=0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        c = link.session.connect(f"psp://127.0.0.1:{port}/nobody")
        request = c.iopen()
        conn, _ = server.accept()
        with conn, pytest.raises(pscompy.Timeout):
            request.wait(0.1)
    with pytest.raises(pscompy.ConnectError) as caught:
        request.wait(BOUND)
    assert caught.value.peer == f"127.0.0.1:{port}"
    check_echo(link)


@pytest.mark.parametrize(
    "address", ["psp://127.0.0.1:1/x", "psp://192.0.2.1:9/x", "psp://nowhere.invalid:9/x"]
)
def test_an_unreachable_address(connect, transport, address):
    link = connect(
        transport, PRECON_TCP_RECONNECT_TIMEOUT=200, PRECON_TCP_CONNECT_STALLED_MAX=2, RETRY=2
    )
    with pytest.raises(pscompy.ConnectError) as caught:
        link.session.connect(address).open(BOUND)
    assert re.search(r"127\.0\.0\.1|192\.0\.2\.1|nowhere", str(caught.value))
    check_echo(link)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "nonsense",
        "psp://",
        "psp://x",
        "psp://x:99999/y",
        "http://127.0.0.1:80/",
        "psp://h:0x1/y",
        "\0",
    ],
)
def test_an_address_that_cannot_be_parsed(link, address):
    with pytest.raises(pscompy.ConnectError):
        link.session.connect(address)


def test_two_hundred_silent_strangers(link, join):
    """Silent strangers are limited in number and in time: a good peer connects while they wait."""
    strangers = []
    try:
        for _ in range(200):
            strangers.append(knock(port_of(link.sock.address)))
        check_echo(join(link))
        check_echo(link)
    finally:
        for stranger in strangers:
            stranger.close()


# ---- strangers at the transport's port ----


def lane_ports(before):
    """Ports that this process listens at, except those in `before`."""
    inodes = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:"):
            inodes.add(target[8:-1])
    ports = {}
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with open(f"/proc/net/{table}") as lines:
            for fields in (line.split() for line in lines.readlines()[1:]):
                if fields[3] == "0A" and fields[9] in inodes:
                    ports[int(fields[1].rpartition(":")[2], 16)] = family
    return {port: family for port, family in ports.items() if port not in before}


@pytest.mark.parametrize("words", WORDS)
def test_strangers_at_the_listener_of_tcp_lanes(connect, join, words):
    link = connect("tcp")
    ports = lane_ports(before={port_of(link.sock.address)})
    assert ports
    for port, family in ports.items():
        where = "::1" if family == socket.AF_INET6 else "127.0.0.1"
        for _ in range(20):
            try:
                with socket.create_connection((where, port), timeout=BOUND) as stranger:
                    stranger.sendall(WORDS[words])
            except (ConnectionResetError, BrokenPipeError, ConnectionRefusedError):
                continue
    check_echo(link)
    check_echo(join(link))


def test_a_flood_of_silence_at_the_listener_of_tcp_lanes(connect, join):
    link = connect("tcp")
    ports = lane_ports(before={port_of(link.sock.address)})
    strangers = []
    try:
        for port, family in ports.items():
            where = "::1" if family == socket.AF_INET6 else "127.0.0.1"
            for _ in range(200):
                strangers.append(socket.create_connection((where, port), timeout=BOUND))
        check_echo(join(link))
        check_echo(link)
    finally:
        for stranger in strangers:
            stranger.close()
