"""The environment variables PSP_SHM_*, the settings of the transport shm."""

from pscompy.plugin import Var, choice, integer, size, text

VARIABLES = (
    Var("BUFFER_SIZE", "32k", size(2048, 1 << 24), "Bytes of one slot of a ring."),
    Var(
        "RECVQ_SIZE",
        "8",
        integer(2, 1 << 16),
        "Slots of a ring. A connection has two rings, one for each direction;"
        " the longest message sent through one takes half of it.",
    ),
    Var(
        "CMA",
        "auto",
        choice("auto", "0", "1"),
        "Copy large messages straight between the buffers of two processes"
        " (cross-memory attach): auto: if a trial shows that it works; 0: never;"
        " 1: a connection without it fails.",
    ),
    Var(
        "RENDEZVOUS",
        "auto",
        size(auto=True),
        "Smallest rendezvous message.",
        parent="RENDEZVOUS",
        aliases=("RENDEZVOUS_SHM",),
    ),
    Var(
        "DIR",
        "",
        text,
        "Folder for the private sockets over which processes meet;"
        " empty: /run/user/<uid>, else /tmp.",
    ),
)
