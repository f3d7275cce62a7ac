"""Several sessions in one process, connections of a session to itself, and names that are taken."""

from __future__ import annotations

import threading

import pytest
from puppets import BOUND, ONLY, check_echo, listen, quiet_port

import pscompy


@pytest.fixture
def session(open_session, transport):
    return open_session(**ONLY[transport])


def check_exchange(one, two):
    """Exchange messages between two connections of this process; one thread drives both."""
    for nbytes in (0, 8, 5000, 300_000, 5_000_000):
        data = bytes([nbytes % 251]) * nbytes
        for source, target in ((one, two), (two, one)):
            receive, send = target.irecv(), source.isend(data)
            # test both each time: each drives its own session
            while not all([receive.test(), send.test()]):
                pass
            assert receive.result() == data


def pair_of(first, second):
    """The two ends of a connection between two sessions of this process."""
    with second.listen("127.0.0.1") as sock:
        c = first.connect(sock.address)
        c.send(b"hello")
        d = sock.accept(timeout=BOUND)
    assert d.recv(timeout=BOUND) == b"hello"
    return c, d


def test_different_configurations(open_session):
    """Three sessions are open at once: with shm alone, with tcp alone, and with both."""
    shm, tcp, both = open_session(TCP=0), open_session(SHM=0), open_session(RENDEZVOUS="1000")
    assert shm.config["TCP"] == 0 or "tcp" in shm.transports
    assert pair_of(shm, both)[0].transport == "shm"
    assert pair_of(tcp, both)[0].transport == "tcp"
    c, _ = pair_of(both, both)
    assert c.explain().as_dict()["eager_max"] < 1000
    with pytest.raises(pscompy.ConnectError) as caught:
        shm.connect(tcp.listen("127.0.0.1").address).open(BOUND)
    assert set(caught.value.candidates) >= {"shm", "tcp"}
    check_exchange(*pair_of(shm, both))
    check_exchange(*pair_of(tcp, both))


def test_two_sessions_in_one_thread(session, open_session, transport):
    check_exchange(*pair_of(session, open_session(**ONLY[transport])))


def test_two_sessions_in_two_threads(session, open_session, transport):
    c, d = pair_of(session, open_session(**ONLY[transport]))
    count = 2000

    def answer():
        for _ in range(count):
            d.send(d.recv(timeout=BOUND))

    thread = threading.Thread(target=answer)
    thread.start()
    for i in range(count):
        c.send(i.to_bytes(4, "little"))
        assert c.recv(timeout=BOUND) == i.to_bytes(4, "little")
    thread.join(BOUND)


def test_one_closes_while_the_other_goes_on(session, open_session, transport, connect):
    link = connect(transport)
    c, d = pair_of(session, open_session(**ONLY[transport]))
    session.close()
    with pytest.raises(pscompy.Closed):
        d.recv(timeout=BOUND)
    with pytest.raises(pscompy.Closed):
        c.send(b"x")
    check_echo(link)


def test_connecting_to_oneself(open_session):
    """A session connects to its own address and then has both ends of the connection."""
    session = open_session()
    c, d = pair_of(session, session)
    check_exchange(c, d)
    assert c.transport == d.transport != ""
    c.close()
    with pytest.raises(pscompy.Closed):
        d.recv(timeout=BOUND)


def connect_second(here, address):
    here.e = here.session.connect(address)
    here.e.send(b"second")
    here.c.send(b"first")


def second_is_closed(here):
    try:
        here.e.recv()
    except pscompy.Closed:
        return True
    return False


def test_two_connections_between_the_same_two(connect, transport):
    """Two connections to one peer are separate: each receives only its own messages."""
    link = connect(transport)
    link.peer.begin(
        connect_second,
        address=link.sock.address,
    )
    second = link.sock.accept(timeout=BOUND)
    assert link.c.recv(timeout=BOUND) == b"first"
    assert second.recv(timeout=BOUND) == b"second"
    link.peer.result()
    second.close()
    link.peer.begin(second_is_closed)
    assert link.peer.result() is True
    check_echo(link)


def rename(here, name):
    here.session.close()
    here.session = pscompy.Session(name, here.config)


def test_a_name_that_is_taken(open_session, start, transport):
    """Two peers that connect to one session must not have the same name."""
    session = open_session("server", **ONLY[transport])
    sock = session.listen("127.0.0.1")
    peers = [start(ONLY[transport]) for _ in range(3)]
    for peer in peers:
        peer(rename, "twin")
    peers[0].connect(sock.address)
    with pytest.raises(pscompy.NameInUse, match="twin"):
        peers[1](lambda here, address: here.session.connect(address).open(60), address=sock.address)
    c = sock.accept(timeout=BOUND)
    assert c.recv(timeout=BOUND) == b"hello"
    peers[0](lambda here: here.session.close())
    with pytest.raises(pscompy.Closed):
        c.recv(timeout=BOUND)
    peers[2].connect(sock.address)  # the name is free again


def test_the_name_of_the_listener(start, transport):
    """A session cannot connect to a listener that has the same name."""
    one, two = start(ONLY[transport]), start(ONLY[transport])
    for peer in (one, two):
        peer(rename, "same")
    address = one(listen)
    with pytest.raises(pscompy.NameInUse, match="same"):
        two(lambda here, address: here.session.connect(address).open(60), address=address)


def test_an_address_of_somebody_else_now(open_session, start, transport):
    """The address names a peer that has ended, and another peer listens at its port."""
    session = open_session(**ONLY[transport])
    peer = start(ONLY[transport])
    port = quiet_port()
    address = peer(listen, port=port)
    peer(lambda here: here.session.close())
    other = start(ONLY[transport])
    other(listen, port=port)
    with pytest.raises(pscompy.ConnectError):
        session.connect(address).open(BOUND)


def test_several_sockets(connect, transport, start):
    """A session listens at three sockets; each accepts its own connections."""
    link = connect(transport)
    socks = [link.session.listen("127.0.0.1", quiet_port()) for _ in range(3)]
    peer = start(ONLY[transport])
    for i, sock in enumerate(socks):
        peer(
            lambda here, address, i: here.session.connect(address).send(bytes([i])),
            address=sock.address,
            i=i,
        )
    for i, sock in reversed(list(enumerate(socks))):
        assert sock.accept(timeout=BOUND).recv(timeout=BOUND) == bytes([i])
    socks[0].close()
    with pytest.raises(pscompy.ConnectError):
        peer(
            lambda here, address: pscompy.Session(config={"RETRY": 0}).connect(address).open(60),
            address=socks[0].address,
        )
    check_echo(link)


def test_a_port_that_is_taken(session):
    port = int(session.listen("127.0.0.1").address.split(":")[2].split("/")[0])
    with pytest.raises(pscompy.ConnectError, match=str(port)):
        session.listen("127.0.0.1", port)
    with pytest.raises(pscompy.ConnectError):
        session.listen("192.0.2.1")
