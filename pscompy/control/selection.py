"""Selection of a connection's transports, and of the protocols over them. Pure functions.

Order is by (PSP_<TRANSPORT>, built-in priority), highest first; a transport with 0 on either side
is excluded. The cost model computes thresholds from a transport's estimates, unless the user has
set them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import NamedTuple

from pscompy.config.parsers import AUTO, INF
from pscompy.control.handshake.identity import Identity

# Capabilities, as in transport.h.
CAP_AM_ZCOPY = 0x0002
CAP_PUT = 0x0004
CAP_GET = 0x0008
CAP_PUT_REMOTE = 0x0020
CAP_SELF = 0x0100
CAP_NODE = 0x0200
CAP_EOF = 0x0800
CAP_MAP = 0x1000
CAP_MODULES = 0x2000
CAP_EXPOSE = 0x4000
CAP_PUT_AM = 0x10000
CAP_FORK = 0x20000

RAILS = "PSP_RAILS"  # names transports whose rails go together; see rail_set.py

# Rendezvous schemes, as in control.h.
SCHEMES = {"auto": 0, "put": 1, "get": 2, "am": 3}

DIRECT = ("get", "put")  # the schemes that need no copies, the better one first

HEADER_MAX = 64  # room that a protocol's header may take in an eager message
EAGER_LIMIT = (128 << 10) - 192  # PSC_EAGER_LIMIT of proto/credit.h
# Length of the shortest receive that the peer sees, by PSP_TUPLEQ. It is not a threshold that a
# launch measures, so the same messages find their receives in every launch. From the automatic one
# on no message is eager: a copy by the kernel takes longer than an eager message of 64 KiB.
SHOWN_MIN = {"auto": 128 << 10, "0": 0, "1": 8 << 10}
THRESHOLD_MAX = 1 << 30  # longest message for which the cost model looks for thresholds
# maximum length of one fragment on a stream, in bytes, because a small message may have to wait for
# the fragment
FRAG_MAX = 1 << 20
STRIPE_MAX = 256 << 10  # bytes of one piece where several lanes share a message


DECLARED, MEASURED, CORRECTED = "declared", "measured at open", "corrected live"


class Estimates(NamedTuple):
    """The capabilities, limits and estimates of an interface; the fields of psc_iface_attr_t."""

    caps: int
    max_bcopy: int
    max_zcopy: int
    min_zcopy: int
    max_put: int
    max_get: int
    latency_ns: float
    overhead_ns: float
    bandwidth: float  # bytes per second
    copy_bandwidth: float
    reg_ns: float
    pipeline: int = 0
    source: str = DECLARED  # source of the values bandwidth and reg_ns
    copy_source: str = DECLARED  # source of the value copy_bandwidth

    def sources(self) -> dict[str, tuple[float, str]]:
        """Return the value of each estimate, and where it comes from."""
        names = dict.fromkeys(("latency_ns", "overhead_ns"), DECLARED)
        names |= {"bandwidth": self.source, "reg_ns": self.source}
        names |= {"copy_bandwidth": self.copy_source}
        return {name: (getattr(self, name), source) for name, source in names.items()}


class Option(NamedTuple):
    """A transport in this process; `reason` says why it cannot be used."""

    name: str
    user_priority: int = 1
    priority: int = 0
    reason: str | None = None
    rails: Mapping[int, int] = MappingProxyType({})  # index of the rail -> its interface
    estimates: Estimates | None = None
    # whether memory is shared with other modules (parts of a machine): PSP_MSA_SHM
    across: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        return self.user_priority, self.priority


class Rail(NamedTuple):
    """A rail of an open transport."""

    option: Option
    number: int

    @property
    def key(self) -> tuple[str, int]:
        """The transport's name and the rail's number."""
        return self.option.name, self.number

    def __str__(self) -> str:
        return f"rail {self.number} of {self.option.name}"


def ordered(options: Iterable[Option]) -> list[Option]:
    """Return the options, highest priority first; those of equal priority keep their order."""
    return sorted(options, key=lambda option: option.rank, reverse=True)


def why_not(option: Option, here: Identity, there: Identity) -> str | None:
    """Return why this transport cannot reach that peer, as far as that is known without trying."""
    if option.reason is not None:
        return option.reason
    if option.user_priority == 0:
        return f"excluded by PSP_{option.name.upper()}=0"
    if option.estimates is None:
        return "was not opened"
    if option.estimates.caps & CAP_SELF:
        return "connects a session with itself only"
    if option.estimates.caps & CAP_MODULES and here.module == there.module:
        return "joins modules, and the peer is in the same one"
    if option.estimates.caps & CAP_NODE:
        return _why_not_node(here, there, option.across)
    return None


def why_not_self(option: Option) -> str | None:
    """Return why this transport cannot connect the session with itself, or None."""
    if option.reason is not None or option.estimates is None:
        return option.reason or "was not opened"
    if not option.estimates.caps & CAP_SELF:
        return "connects to other sessions only"
    return None


def _why_not_node(here: Identity, there: Identity, across: bool) -> str | None:
    if here.host != there.host:
        return f"reaches its own node only, and the peer runs on {there.hostname}"
    if here.user != there.user:
        return f"shares memory within one user only (here {here.user}, there {there.user})"
    if here.module != there.module and not across:
        return "shares memory within one module only, without PSP_MSA_SHM=1"
    return None


def candidates(
    options: Iterable[Option], here: Identity, there: Identity
) -> tuple[list[Option], dict[str, str]]:
    """Return the connector's candidates in order, and the reasons for all other transports."""
    usable: list[Option] = []
    absent: dict[str, str] = {}
    for option in ordered(options):
        reason = why_not(option, here, there)
        if reason is None:
            usable.append(option)
        else:
            absent[option.name] = reason
    return usable, absent


# ---- protocols and thresholds -------------------------------------------------------------------


class Settings(NamedTuple):
    """The user's settings of the protocols; the cost model decides where they are AUTO."""

    rendezvous: int = AUTO  # bytes of the shortest rendezvous message; INF if there are none
    scheme: str = "auto"


ALL_AUTO = Settings()


def shown_min(tupleq: str, least: int) -> int:
    """Return the length of the shortest receive that a peer sees (PSP_TUPLEQ, PSP_TUPLEQ_MIN); 0 if
    it sees none."""
    return SHOWN_MIN[tupleq] if tupleq == "0" or least == AUTO else least


def untold(tupleq: str, caps: int, scheme: str, lanes: int) -> str:
    """Return why no messages announce long receives to their senders; "" if messages do."""
    if caps & CAP_EXPOSE:
        return "they are shown in shared memory"
    if tupleq != "1":
        return "PSP_TUPLEQ is not 1"
    if scheme != "auto":
        return f"PSP_RNDV_SCHEME is {scheme}"
    if lanes > 1:
        return "there are several rails"
    return "" if caps & CAP_PUT_AM else "the transport cannot put into them"


class Params(NamedTuple):
    """The fields of psc_proto_params_t, and the rendezvous that follows from them."""

    eager_max: int
    try_max: int
    zcopy_min: int
    scheme: str  # "auto" unless the user forces one
    fragment: int
    rendezvous: str


def eager_ns(estimates: Estimates, nbytes: int) -> float:
    """Return the cost of an eager message: one copy into the ring and one out of it, which begins
    when the first piece has arrived."""
    alone = min(nbytes, estimates.pipeline or nbytes)
    copies = (nbytes + alone) / estimates.copy_bandwidth * 1e9
    return estimates.latency_ns + 2 * estimates.overhead_ns + copies


def replaceable(caps: int) -> bool:
    """Return whether any of several lanes with these capabilities may fail: psc_lane_replaceable of
    core/types/lane.h."""
    known = caps & CAP_PUT_REMOTE or not caps & CAP_PUT
    return bool(known and not caps & (CAP_MAP | CAP_EXPOSE))


def spare(rails: Sequence[Rail]) -> bool:
    """Return whether a connection over these rails goes on if any one rail is lost."""
    known = [rail.option.estimates.caps for rail in rails if rail.option.estimates]
    return len(rails) > 1 and all(map(replaceable, known))


def zcopy_ns(estimates: Estimates, nbytes: int) -> float:
    """Return the cost of an eager message without a copy: the receiver's transport asks for the
    payload's place as soon as it has the header."""
    wire = nbytes / estimates.bandwidth * 1e9
    return estimates.latency_ns + 2 * estimates.overhead_ns + estimates.reg_ns + wire


def rendezvous_ns(estimates: Estimates, nbytes: int, scheme: str) -> float:
    """Return the cost of a rendezvous: three control messages, registration at both ends, the data.
    Fragments that the transport cannot send from where they lie are copied like eager messages."""
    control = 3 * (estimates.latency_ns + estimates.overhead_ns)
    wire = estimates.latency_ns + nbytes / estimates.bandwidth * 1e9
    if scheme != "am":
        return control + 2 * estimates.reg_ns + wire
    if estimates.caps & CAP_AM_ZCOPY:
        return control + wire
    return control + max(wire, eager_ns(estimates, nbytes))


@lru_cache(64)
def parameters(
    estimates: Estimates, settings: Settings = ALL_AUTO, others: tuple[Estimates, ...] = ()
) -> Params:
    """Return the parameters of a connection over a lane with these estimates and `others`."""
    lanes = (estimates, *others)
    rendezvous = _scheme(lanes, settings.scheme)
    fragment = max(_fragment(lane, rendezvous) for lane in lanes if able(lane.caps, rendezvous))
    eager = estimates
    if others and all(replaceable(lane.caps) for lane in lanes):
        # Every short message is copied until it is acknowledged, so that any lane can send it again
        # (proto/replay.h).
        longest = min(lane.max_bcopy for lane in lanes)
        eager = estimates._replace(caps=estimates.caps & ~CAP_AM_ZCOPY, max_bcopy=longest)
    return Params(
        eager_max=_eager_max(eager, settings.rendezvous, rendezvous),
        try_max=min(EAGER_LIMIT, eager.max_bcopy - HEADER_MAX) if settings == ALL_AUTO else 0,
        zcopy_min=_zcopy_min(estimates),
        # "auto" lets the core put or get over the lanes that can.
        scheme="auto" if settings.scheme == "auto" and _able_alike(lanes) else rendezvous,
        fragment=min(fragment, STRIPE_MAX) if others else fragment,
        rendezvous=rendezvous,
    )


def able(caps: int, scheme: str) -> bool:
    """Return whether a lane with these capabilities can move the bytes of a rendezvous by this
    scheme."""
    return scheme == "am" or bool(caps & {"put": CAP_PUT, "get": CAP_GET}[scheme])


def _able_alike(lanes: tuple[Estimates, ...]) -> bool:
    return all(able(it.caps, way) == able(lanes[0].caps, way) for it in lanes for way in DIRECT)


def _scheme(lanes: tuple[Estimates, ...], wish: str) -> str:
    """Return the scheme of the connection's rendezvous. If only some lanes can put or get, the
    estimates decide which is faster: puts or gets over these lanes, or messages over all lanes."""
    if wish != "auto":
        return wish if any(able(lane.caps, wish) for lane in lanes) else "am"
    direct = next((way for way in DIRECT if any(able(it.caps, way) for it in lanes)), "am")
    faster = _able_alike(lanes) or _rate(lanes, direct) > _rate(lanes, "am")
    return direct if faster else "am"


def _rate(lanes: tuple[Estimates, ...], scheme: str) -> float:
    """Return the rate of long messages, in bytes per ns, over all lanes that can use the scheme."""
    moving = (lane for lane in lanes if able(lane.caps, scheme))
    return sum(THRESHOLD_MAX / rendezvous_ns(lane, THRESHOLD_MAX, scheme) for lane in moving)


def _eager_max(estimates: Estimates, wish: int, scheme: str) -> int:
    """Return the longest message for which a rendezvous costs more, or is not allowed."""
    longest = estimates.max_bcopy - HEADER_MAX
    if estimates.caps & CAP_AM_ZCOPY:
        longest = max(longest, estimates.max_zcopy)
    longest = min(longest, EAGER_LIMIT)
    if wish == INF:
        return longest
    if wish != AUTO:
        return max(0, min(longest, wish - 1))
    ways = [eager_ns, zcopy_ns] if estimates.caps & CAP_AM_ZCOPY else [eager_ns]
    threshold = max(_crossover(partial(_rendezvous_wins, estimates, scheme, way)) for way in ways)
    return max(0, min(longest, threshold - 1))


def _rendezvous_wins(
    estimates: Estimates, scheme: str, eager: Callable[[Estimates, int], float], nbytes: int
) -> bool:
    return rendezvous_ns(estimates, nbytes, scheme) < eager(estimates, nbytes)


def _zcopy_min(estimates: Estimates) -> int:
    if not estimates.caps & CAP_AM_ZCOPY:
        return INF
    threshold = _crossover(lambda nbytes: zcopy_ns(estimates, nbytes) < eager_ns(estimates, nbytes))
    return max(estimates.min_zcopy, threshold)


def _crossover(better: Callable[[int], bool]) -> int:
    """Return the smallest size from which on `better` holds; both costs are linear in the size."""
    if better(0):
        return 0
    if not better(THRESHOLD_MAX):
        return INF
    low, high = 0, THRESHOLD_MAX
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if better(middle) else (middle, high)
    return high


def _fragment(estimates: Estimates, scheme: str) -> int:
    """Return the length of a fragment: as long as the transport allows, for few completions, but
    bounded on a stream, where other messages wait behind it."""
    if scheme == "am":
        longest = estimates.max_bcopy - HEADER_MAX
        return max(
            longest, min(estimates.max_zcopy, FRAG_MAX) if estimates.caps & CAP_AM_ZCOPY else 0
        )
    return {"put": estimates.max_put, "get": estimates.max_get}[scheme]


# ---- correction by the times of messages --------------------------------------------------------

# largest ratio of the time by the chosen protocol to the shortest time; above it another protocol
# is chosen
LOSS_MAX = 1.1
TIMED_MIN = 8  # least number of measured messages of one kind by which an estimate is corrected


class Moved(NamedTuple):
    """psc_moved_t: the messages that arrived in one way (by copies, or by gets), and their time."""

    messages: int = 0
    nbytes: int = 0
    ns: int = 0


def corrected(estimates: Estimates, copies: Moved, gets: Moved) -> Estimates:
    """Return the estimates, corrected by measured times: `copy_bandwidth` by those of messages that
    were copied, `bandwidth` and `reg_ns` by those of messages that were fetched by gets. A way of
    which fewer than TIMED_MIN messages were timed corrects nothing."""
    if copies.messages >= TIMED_MIN:
        rate = copies.nbytes / max(copies.ns, 1) * 1e9
        estimates = estimates._replace(copy_bandwidth=rate, copy_source=CORRECTED)
    if gets.messages >= TIMED_MIN:
        expected = 2 * gets.messages * estimates.reg_ns + gets.nbytes / estimates.bandwidth * 1e9
        slower = max(gets.ns, 1) / max(expected, 1.0)
        estimates = estimates._replace(
            bandwidth=estimates.bandwidth / slower,
            reg_ns=estimates.reg_ns * slower,
            source=CORRECTED,
        )
    return estimates


def loss(estimates: Estimates, params: Params) -> float:
    """Return the factor by which a message takes longer than by the fastest protocol, for the worst
    size from 1 KiB to 128 KiB."""
    sizes = (round(1024 * 2 ** (power / 2)) for power in range(15))
    costs = (_cost(estimates, params, nbytes) for nbytes in sizes)
    return max(it.ns / min((it.ns, *it.others.values())) for it in costs)


class Cost(NamedTuple):
    """The estimated time of a message of `nbytes` bytes: `ns` by `protocol`, which is the one that
    it is sent by; `others` has the estimates of the connection's other protocols."""

    nbytes: int
    protocol: str
    ns: float
    others: Mapping[str, float]


def cost_table(estimates: Estimates, params: Params) -> list[Cost]:
    """Return the costs from 1 KiB to 64 MiB in powers of four, and at the thresholds."""
    sizes = {4**power for power in range(5, 14)} | {params.eager_max, params.eager_max + 1}
    return [_cost(estimates, params, nbytes) for nbytes in sorted(sizes)]


# `explain()` names a transport of lower priority whose speed-up is estimated to exceed this factor
FASTER = 2.0


def faster(chosen: Estimates, params: Params, other: Estimates) -> tuple[float, int] | None:
    """Return the greatest estimated speed-up of another transport over the chosen one, and the
    length of the message for which it is reached; None if it is at most FASTER."""
    theirs = parameters(other)
    factor, nbytes = max(
        (it.ns / _cost(other, theirs, it.nbytes).ns, it.nbytes) for it in cost_table(chosen, params)
    )
    return (factor, nbytes) if factor > FASTER else None


def _cost(estimates: Estimates, params: Params, nbytes: int) -> Cost:
    rendezvous = f"rendezvous {params.rendezvous}"
    costs = {rendezvous: rendezvous_ns(estimates, nbytes, params.rendezvous)}
    copied = nbytes <= estimates.max_bcopy - HEADER_MAX
    if copied:
        costs["eager bcopy"] = eager_ns(estimates, nbytes)
    if estimates.caps & CAP_AM_ZCOPY and nbytes <= min(estimates.max_zcopy, EAGER_LIMIT):
        costs["eager zcopy"] = zcopy_ns(estimates, nbytes)
    chosen = rendezvous
    if nbytes <= params.eager_max:
        chosen = "eager bcopy" if copied and nbytes < params.zcopy_min else "eager zcopy"
    return Cost(nbytes, chosen, costs.pop(chosen), costs)
