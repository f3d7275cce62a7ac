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
        "Seconds of silence on the precon link after which a peer is lost.",
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
    Var("RTS_MAX", "1024", integer(1, 1 << 16), "Unmatched rendezvous messages of a connection."),
    Var("POOL_MAX", "1G", size(), "Most bytes of a session's pool; beyond it messages are copied."),
    Var(
        "TUPLEQ",
        "auto",
        choice("auto", "0", "1"),
        "Peers see long receives and fill them (docs/overlap.md): auto: if a message of that"
        " length is not eager; 0: never; 1: from 8 KiB on, and over tcp by messages.",
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
    Var("PRECON_TCP_SO_SNDBUF", "32768", size(1, 1 << 30), "Send buffer of the precon link."),
    Var("PRECON_TCP_SO_RCVBUF", "32768", size(1, 1 << 30), "Receive buffer of the precon link."),
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

VARIABLES = GENERAL + LAUNCH + MODULES + PROTOCOL + PARCEL + DEBUG + PRECON

# Undeclared names that are not reported as misspelt. A name that ends in _ stands for all
# names that begin with it.
KNOWN = ("BUILD_PLUGINS",)  # PSP_BUILD_PLUGINS is read when pscompy is built

# ParaStation's names that have no effect in pscompy.
WITHOUT_EFFECT = (
    *("OPENIB", "OPENIB_GLOBAL_SENDQ", "OPENIB_EVENT_CNT", "OPENIB_IGNORE_WRONG_OPCODES"),
    *("OPENIB_LID_OFFSET", "OPENIB_MALLOC_OPTS"),
    *("FINALIZE_SHUTDOWN", "SMP_NODE_ID", "MSA_AWARE_COLLOPS", "MSA_NODE_ID"),
    *("DAPL_", "ELAN_", "EXTOLL_", "GM_", "MVAPI_", "MXM_", "OFED_", "PSM_", "UCP_", "VELO_"),
    *("CUDA_", "INFO", "IPROBE_COUNT", "MALLOC_", "READAHEAD"),
    *("RENDEZVOUS_DAPL", "RENDEZVOUS_ELAN", "RENDEZVOUS_EXTOLL", "RENDEZVOUS_VELO"),
    *("RMA_MSG_SIZE_DIRECT_MEM_COPY", "SCHED_YIELD", "SHAREDMEM", "SHM_DIRECT", "SHM_INDIRECT"),
    *("SIGSEGV", "SIGSUSPEND", "SKIPBLOCKSIZE", "UNEXPECTED_RECEIVES"),
    *("DEBUG_BYE_MSG", "DEBUG_PRECON", "DEBUG_REQ", "DEBUG_SUSPEND"),
    *("PRECON_TYPE", "PRECON_RRCOMM_"),
)

# Section -> prefixes of its variables' names, for transports of pscompy in separate packages. Such
# a transport is not found if pscompy runs from a source folder that was not installed.
APART = {"GATEWAY": ("GATEWAY_", "GW_")}
