"""The environment variables PSP_IB_*. ParaStation's PSP_OPENIB_* are their aliases;
docs/from-parastation.md lists the variables of ParaStation that have no effect here."""

from __future__ import annotations

from pscompy.plugin import Parser, Var, choice, flag, integer, seconds, size


def _ports(given: str) -> str:
    for entry in given.split(",") if given else ():
        device, colon, port = entry.partition(":")
        if not device or device.split() != [device]:
            raise ValueError
        if colon and not (port.isdecimal() and 1 <= int(port) <= 255):
            raise ValueError
    return given


VARIABLES = (
    Var(
        "HCA",
        "",
        Parser(_ports, "empty, all, or devices, each with its port or without: mlx5_0:1,mlx5_1"),
        "Devices to use, as in ibv_devinfo, and their ports: each is a rail. Empty: one rail, the"
        " first device with an active port; all: every active port.",
        aliases=("OPENIB_HCA",),
        selects=True,
    ),
    Var(
        "PORT",
        "0",
        integer(0, 255),
        "Port of a device that PSP_IB_HCA names without one; 0: its first active port.",
        aliases=("OPENIB_PORT",),
        selects=True,
    ),
    Var(
        "PATH_MTU",
        "auto",
        choice("auto", "256", "512", "1024", "2048", "4096", "1", "2", "3", "4", "5"),
        "Bytes of one packet, or 1 (256) to 5 (4096); auto: the largest that both ports have.",
        aliases=("OPENIB_PATH_MTU",),
        selects=True,
    ),
    Var(
        "GID_INDEX",
        "-1",
        integer(-1, 255),
        "Entry of the port's GID table; -1: on Ethernet the best RoCE one, else the first.",
        selects=True,
    ),
    Var("SERVICE_LEVEL", "0", integer(0, 15), "Service level of the connections."),
    Var("TIMEOUT", "14", integer(1, 31), "Wait for an acknowledgement: 4.096 us * 2^this."),
    Var(
        "RETRY_COUNT",
        "6",
        integer(0, 6),
        "How often a packet is sent again before its peer is lost; 7 would mean for ever"
        " on some devices.",
    ),
    Var("CONNECT_TIMEOUT", "10", seconds, "Seconds within which a peer must answer."),
    Var("KEEPALIVE", "5", seconds, "Seconds between two checks whether a silent peer is alive."),
    Var(
        "BUFFER_SIZE",
        "16k",
        size(2048, 1 << 22),
        "Bytes of one buffer, rounded down to a multiple of 8; the same on both sides.",
    ),
    Var(
        "BUFFER_BYTES",
        "64M",
        size(1 << 20),
        "Bytes for the receive buffers, for the send buffers, and for the rings; of long buffers"
        " there are fewer, but at least 16 to receive and 4 to send.",
    ),
    Var(
        "EAGER",
        "auto",
        choice("auto", "rdma", "srq"),
        "Where messages land: rdma: in a ring for each peer; srq: in buffers that all share;"
        " auto: in rings for the first RDMA_PEERS busy peers.",
    ),
    Var("RDMA_PEERS", "8", integer(0, 1 << 16), "Busy peers that get a ring with EAGER=auto."),
    Var(
        "RECVQ_SIZE",
        "32",
        integer(4, 4096),
        "Messages that a peer may send before its credits return; rounded up to a power of two,"
        " and fewer if PSP_IB_SRQ_SIZE has no room for them.",
        aliases=("OPENIB_RECVQ_SIZE",),
    ),
    Var(
        "SRQ_SIZE",
        "256",
        integer(16, 1 << 15),
        "Receive buffers, shared by all connections; no more than the device can have.",
    ),
    Var(
        "SENDQ_SIZE",
        "64",
        integer(16, 1 << 12),
        "Send requests that one connection may have in flight; rounded up to a power of two.",
        aliases=("OPENIB_SENDQ_SIZE",),
    ),
    Var("SEND_BUFFERS", "64", integer(4, 1 << 15), "Send buffers, shared by all connections."),
    Var(
        "COMPQ_SIZE",
        "1024",
        integer(16, 1 << 20),
        "Entries of the completion queue; it grows with the number of connections.",
        aliases=("OPENIB_COMPQ_SIZE",),
    ),
    Var(
        "PENDING_TOKENS",
        "20",
        integer(1, 4096),
        "Messages received before their credits return in a message of their own.",
        aliases=("OPENIB_PENDING_TOKENS",),
    ),
    Var(
        "MCACHE_SIZE",
        "64",
        integer(0, 1 << 16),
        "Registrations that are kept for the next message; 0: none.",
        aliases=("OPENIB_MCACHE_SIZE",),
    ),
    Var(
        "MCACHE_BYTES",
        "256M",
        size(),
        "Bytes that these registrations may have together.",
    ),
    Var(
        "RNDV_FALLBACKS",
        "1",
        flag,
        "1: payload whose memory cannot be registered is sent in messages; 0: the connection"
        " fails.",
        aliases=("OPENIB_RNDV_FALLBACKS",),
    ),
    Var(
        "RENDEZVOUS",
        "auto",
        size(auto=True),
        "Smallest rendezvous message.",
        parent="RENDEZVOUS",
        aliases=("OPENIB_RENDEZVOUS", "RENDEZVOUS_OPENIB"),
    ),
)
