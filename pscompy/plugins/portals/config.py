"""The environment variables PSP_PORTALS_*: their defaults, ranges and help texts."""

from __future__ import annotations

from pscompy.plugin import Var, choice, flag, integer, seconds, size, text

VARIABLES = (
    Var(
        "PROVIDER",
        "auto",
        choice("auto", "system", "software"),
        "Implementation of Portals 4: a library of this machine, or the software NI of pscompy;"
        " auto: the library if the build and this machine have one, else the software NI if"
        " PSP_PORTALS is set.",
        selects=True,
    ),
    Var(
        "INTERFACE",
        "",
        text,
        "Network interfaces, separated by commas, each a rail: numbers for a library, IPv4"
        " addresses for the software NI; empty: the default one, which for the software NI reaches"
        " this machine only.",
        selects=True,
    ),
    Var(
        "BUFFER_SIZE",
        "8k",
        size(2048, 1 << 22),
        "Bytes of one eager buffer; the same on both sides.",
    ),
    Var(
        "SENDQ_SIZE",
        "16",
        integer(2, 4096),
        "Send buffers of one connection.",
        aliases=("PORTALS_SENDRQ_SIZE",),
    ),
    Var(
        "RECVQ_SIZE",
        "16",
        integer(4, 4096),
        "Messages that a peer may have in flight before this side reports them as taken; the"
        " receive ring of a connection has six buffers more.",
    ),
    Var(
        "OVERFLOW_SIZE",
        "0",
        integer(0, 4096),
        "Buffers of a connection for messages that the interface matches and that arrive before"
        " their receive; 0: as many as PSP_PORTALS_RECVQ_SIZE. With fewer the interface closes"
        " its table entry when none is left.",
    ),
    Var("EQ_SIZE", "64k", size(64, 1 << 24), "Entries of each event queue."),
    Var(
        "RETRY_COUNT",
        "16",
        integer(0, 60),
        "How often a dropped message is sent again, at growing intervals, before its peer counts"
        " as lost.",
    ),
    Var("CONNECT_TIMEOUT", "10", seconds, "Seconds within which a peer must answer."),
    Var("KEEPALIVE", "5", seconds, "Seconds between two checks whether a silent peer is alive."),
    Var(
        "RAIL_TIMEOUT",
        "1.5",
        seconds,
        "With several interfaces and the software NI: how long the peer may leave unanswered what"
        " was sent over one of them, before the connection goes on without it.",
    ),
    Var(
        "RNDV_FRAGMENT_SIZE",
        "inf",
        size(1024),
        "Most bytes of one put or get; never more than the interface takes.",
    ),
    Var(
        "MAX_RNDV_REQS",
        "4096",
        integer(1, 1 << 20),
        "Open rendezvous of one connection; further ones use active messages.",
    ),
    Var(
        "FOSTER_PROGRESS",
        "0",
        integer(0, 1 << 16),
        "Extra polls of the event queues while a rendezvous is in progress, for a library that"
        " makes progress only when it is polled.",
        aliases=("PORTALS4_FOSTER_PROGRESS",),
    ),
    Var(
        "MATCHING",
        "1",
        flag,
        "Let the interface match messages to receives, if it can; 0: pscompy matches them.",
    ),
    Var("RENDEZVOUS", "auto", size(auto=True), "Smallest rendezvous message.", parent="RENDEZVOUS"),
)
