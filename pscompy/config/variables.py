"""The variables of pscompy itself, one tuple for each topic.

Transports declare their variables beside their code. If ParaStation has a
variable, its name and meaning are the same here.
"""

from __future__ import annotations

from pscompy.config.config import Var
from pscompy.config.parsers import (
    choice,
    count,
    flag,
    integer,
    joined,
    names,
    seconds,
    size,
    text,
    wait,
)

GENERAL = (
    Var("KEY", "", text, "Key shared by all processes of the job.", secret=True),
    Var("KEY_FILE", "", text, "File that holds the key; empty: the user's own."),
    Var("NETWORK", "", text, "Networks, addresses or interfaces to use, in order of preference."),
    Var("RAILS", "", joined, "Transports whose rails go together, such as ib+tcp; empty: none."),
    Var("PLUGINDIR", "", text, "Folders with further plug-ins, separated by colons."),
    Var("GUARD", "1", flag, "Keep the link of the handshake (precon) open, to notice dead peers."),
    Var(
        "GUARD_TIMEOUT",
        "30",
        seconds,
        "Seconds of silence on the precon after which a peer is lost.",
    ),
    Var("RETRY", "10", count, "Further attempts to connect, at most 1 s apart, if a peer refuses."),
    Var("CANDIDATE_TIMEOUT", "10", seconds, "Seconds for a transport to connect; inf: no limit."),
    Var("SHUTDOWN_TIMEOUT", "10", wait, "Seconds for which closing waits for silent peers."),
    Var("FINALIZE_TIMEOUT", "30", wait, "Seconds that a World waits for its ranks at its end."),
)

LAUNCH = (
    Var("RANK", "auto", integer(0, auto=True), "Rank of this process; auto: from the launcher."),
    Var("SIZE", "auto", integer(1, auto=True), "Number of ranks; 1: alone, under any launcher."),
    Var("STORE", "", text, "HOST:PORT of rank 0, for ranks that PSP_RANK and PSP_SIZE number."),
    Var("STORE_PORT", "auto", integer(1, 65535, auto=True), "Rank 0's port under torchrun."),
    Var(
        "RSH",
        "ssh -o BatchMode=yes -o ServerAliveInterval=10",
        text,
        "Command by which `pscompy run` reaches a host: RSH HOST COMMAND.",
    ),
    Var("STORE_TIMEOUT", "300", wait, "Seconds to wait for rank 0 to listen at PSP_STORE."),
    Var("ONDEMAND", "1", flag, "0: a World connects to all ranks when it opens; 1: at first use."),
)

MODULES = (
    Var("MSA_MODULE_ID", "0", integer(0, 65535), "Number of the module that this process is in."),
    Var("JOIN", "", text, "NAME:MODULES of the World that joins several jobs; empty: none."),
    Var("JOIN_TIMEOUT", "60", wait, "Seconds to wait for the other jobs of PSP_JOIN."),
    Var("MSA_AWARENESS", "1", flag, "Barriers and broadcasts use one connection per module."),
    Var("MSA_SHM", "0", flag, "Let processes of different modules share memory."),
)

COLLECTIVES = (
    Var("COLL_BCAST", "auto", choice("auto", "tree", "parts"), "Algorithm of bcast."),
    Var("COLL_REDUCE", "auto", choice("auto", "tree", "parts"), "Algorithm of reduce."),
    Var(
        "COLL_ALLREDUCE",
        "auto",
        choice("auto", "tree", "doubling", "parts"),
        "Algorithm of allreduce.",
    ),
    Var("COLL_GATHER", "auto", choice("auto", "tree", "pairs"), "Algorithm of gather."),
    Var("COLL_SCATTER", "auto", choice("auto", "tree", "pairs"), "Algorithm of scatter."),
    Var("COLL_ALLGATHER", "auto", choice("auto", "doubling", "pairs"), "Algorithm of allgather."),
    Var("COLL_CHECK", "0", flag, "Before each collective, ranks compare what they have called."),
)

PROTOCOL = (
    Var("SPIN_US", "50", integer(0, 60_000_000), "Microseconds of polling before a wait sleeps."),
    Var("PROGRESS_THREAD", "0", flag, "A native thread makes progress while the program computes."),
    Var(
        "PROGRESS_PATIENCE_US",
        "200",
        integer(1, 60_000_000),
        "Microseconds without a call of the program before that thread makes progress.",
    ),
    Var(
        "ENDPOINTS",
        "dynamic",
        choice("dynamic", "shared", "single"),
        "Endpoints: each has a worker of its own, two share one, or all share the World's.",
    ),
    Var("UNEXPECTED_MAX", "64M", size(), "Bytes of unexpected eager messages in a session."),
    Var("EAGER_WINDOW", "4M", size(1), "Bytes of eager messages in flight on one connection."),
    Var(
        "RTS_MAX",
        "65536",
        integer(1, 1 << 19),
        "Announced messages of a connection without a receive at the peer; later ones wait.",
    ),
    Var("POOL_MAX", "1G", size(), "Most bytes of a session's pool; beyond it messages are copied."),
    Var(
        "TUPLEQ",
        "auto",
        choice("auto", "0", "1"),
        "Peers see long receives and fill them (docs/overlap.md): auto: from 128 KiB on; 0: never;"
        " 1: from 8 KiB on, and over ib by messages.",
    ),
    Var(
        "TUPLEQ_MIN",
        "auto",
        size(1, auto=True),
        "Shortest receive and shortest message for PSP_TUPLEQ; auto: as PSP_TUPLEQ says.",
    ),
    Var("RENDEZVOUS", "auto", size(auto=True), "Shortest rendezvous message; auto: by cost model."),
    Var("RNDV_SCHEME", "auto", choice("auto", "put", "get", "am"), "Rendezvous by put, get or am."),
)

PARCEL = (
    Var("PARCEL_ZERO_COPY", "4k", size(1), "Shortest buffer of an object that is not copied."),
    Var("PARCEL_SERIALISER", "pickle", text, "pickle, cloudpickle, or module:name of your own."),
    Var("PARCEL_UNPICKLE", "any", choice("any", "restricted"), "Names that objects may load."),
    Var("PARCEL_ACTIONS", "registered", choice("registered", "any"), "Functions that peers call."),
    Var("PARCEL_THREADS", "auto", integer(1, 4096, auto=True), "Most actions that run at once."),
    Var("PARCEL_ALLOW", "", names, "Names that restricted objects may load, besides plain types."),
)

DEBUG = (
    Var(
        "DEBUG",
        "1",
        integer(0, 6),
        "0 fatal, 1 error, 2 warning, 3 info, 4 debug, 5 verbose, 6 trace.",
    ),
    Var("DEBUG_OUT", "", text, "File for the log; ${VAR} and $$ are expanded. Empty: stderr."),
    Var(
        "DEBUG_TIMING",
        "0",
        choice("0", "off", "1", "us", "date", "wall", "delta"),
        "Time at the start of each line of the log: 1 or us: since the start, delta: since the line"
        " before, wall: since 1970, date: local date and time.",
    ),
    Var("DEBUG_VERSION", "0", flag, "Log the version when a session opens."),
    Var("DEBUG_PARAM", "0", integer(0, 2), "Log the variables: 1: those that are set, 2: all."),
    Var("DEBUG_STATS", "0", flag, "Log a session's counters when it closes."),
    Var("DEBUG_CONTYPE", "0", flag, "Log every connection with its transport."),
    Var("SIGQUIT", "0", flag, "SIGQUIT writes to stderr what every session has in flight."),
    Var("DEADLOCK_WARNINGS", "0", wait, "Log waits of a World that last so long; 0: none."),
)

PRECON = (
    Var("PRECON_TCP_SO_SNDBUF", "32768", size(1, 1 << 30), "Send buffer of the precon."),
    Var("PRECON_TCP_SO_RCVBUF", "32768", size(1, 1 << 30), "Receive buffer of the precon."),
    Var("PRECON_TCP_NODELAY", "1", flag, "Send precon messages at once."),
    Var(
        "PRECON_TCP_RECONNECT_TIMEOUT",
        "2000",
        count,
        "Milliseconds without an answer before the handshake is tried anew.",
    ),
    Var(
        "PRECON_TCP_CONNECT_STALLED_MAX",
        "6",
        count,
        "Attempts without any answer after which the peer counts as unreachable.",
    ),
)

VARIABLES = GENERAL + LAUNCH + MODULES + COLLECTIVES + PROTOCOL + PARCEL + DEBUG + PRECON

# Undeclared names that are not reported as misspelt. A name that ends in _ stands for all
# names that begin with it.
KNOWN = ("BUILD_PLUGINS",)  # PSP_BUILD_PLUGINS is read when pscompy is built

_NO_SUCH_TRANSPORT = "there is no such transport"

# ParaStation's names that have no effect in pscompy (of several at once, with spaces between them),
# and what there is here instead. docs/from-parastation.md has the same texts.
_WITHOUT_EFFECT = {
    # of pscom
    "OPENIB_GLOBAL_SENDQ OPENIB_EVENT_CNT": (
        "completion queues are always shared, events always armed"
    ),
    "OPENIB_IGNORE_WRONG_OPCODES": "a wrong completion is always an error",
    "OPENIB_LID_OFFSET": "the base LID is used",
    "OPENIB_MALLOC_OPTS MALLOC_ SHAREDMEM": "there are no hooks in malloc",
    "SHM_DIRECT SHM_INDIRECT": (
        "long messages are copied straight between the processes (PSP_SHM_CMA), or lent"
    ),
    "UNEXPECTED_RECEIVES READAHEAD SKIPBLOCKSIZE": (
        "every message is received, up to PSP_UNEXPECTED_MAX bytes"
    ),
    "SCHED_YIELD IPROBE_COUNT": "a wait polls for PSP_SPIN_US microseconds and then sleeps",
    "SIGSEGV SIGSUSPEND": (
        "python -X faulthandler writes the lines of a crash, and connections are not suspended"
    ),
    "RMA_MSG_SIZE_DIRECT_MEM_COPY": "there are put and get, no accumulate",
    "DEBUG_REQ DEBUG_BYE_MSG DEBUG_SUSPEND DEBUG_PRECON": (
        "PSP_DEBUG=4 logs what connects, and session.dump() shows requests without a switch"
    ),
    "INFO": "there is no tree of information",
    "PRECON_TYPE PRECON_RRCOMM_": "the handshake goes over TCP or through gateways",
    "CUDA_": "memory of the host only",
    "UCP_ PSM_ OFED_ MXM_ ELAN_ GM_ MVAPI_": _NO_SUCH_TRANSPORT,
    "EXTOLL_ RENDEZVOUS_EXTOLL VELO_ RENDEZVOUS_VELO": _NO_SUCH_TRANSPORT,
    "DAPL_ RENDEZVOUS_DAPL RENDEZVOUS_ELAN": _NO_SUCH_TRANSPORT,
    # of psmpi
    "DIRECT_CONNECT": "PSP_ONDEMAND=0 connects to all ranks when a World opens",
    "DIRECT_CONNECT_SPAWN ONDEMAND_SPAWN": (
        "no rank spawns others, but PSP_JOIN joins jobs that were started apart"
    ),
    "COLLECTIVES COLLOPS_STATS HCOLL_ UCC_": (
        "collectives are messages between ranks, which session.stats counts"
    ),
    "SMP_AWARENESS SMP_AWARE_COLLOPS SMP_NODE_ID MSA_NODE_ID MSA_AWARE_COLLOPS": (
        "barrier and bcast regard modules (PSP_MSA_AWARENESS), not nodes"
    ),
    "HISTOGRAM_": (
        "session.stats, connection.stats and PSP_DEBUG_STATS=1 count messages by protocol"
    ),
    "LAZY_DISCONNECT KEEP_CONNECTIONS": (
        "connections of a World, and of all communicators made from it, stay until it closes"
    ),
    "HARD_ABORT": "World.abort() has the launcher end all ranks, and ends its own by os._exit()",
    "FINALIZE_BARRIER": (
        "a World waits for its ranks at its end (PSP_FINALIZE_TIMEOUT), World.close() does not"
    ),
    "FINALIZE_SHUTDOWN": "a World closes all of its connections at its end",
    "FINALIZE_EXIT": "a process goes on after its World, until sys.exit() or os._exit()",
    "ACCUMULATE_ORDERING RMA_EXPLICIT_WAIT": "there are put and get, no accumulate",
    "DEBUG_SETTINGS": "versions are compared whenever two processes connect",
    "LIGHTWEIGHT_INIT_BARRIER": "a World opens when the launcher knows that all ranks open theirs",
    "COMPRESSOR_PLUGINS": "no plug-in compresses messages",
    "PMI_VERSION": "the launcher's variables say whether it speaks PMI-1 or PMIx",
}
WITHOUT_EFFECT = {
    name: instead for names, instead in _WITHOUT_EFFECT.items() for name in names.split()
}

# Section -> older names of PSP_<SECTION>, the priority of its transport.
OTHER_NAMES = {"IB": ("OPENIB",)}

# Section -> prefixes of its variables' names, for transports of pscompy in separate packages. Such
# a transport is not found if pscompy runs from a source folder that was not installed.
APART = {"GATEWAY": ("GATEWAY_", "GW_")}
