"""Order, reachability, and the cost model of transports, all of them pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from precon_pairs import identity

from pscompy.config.parsers import INF
from pscompy.control import selection
from pscompy.control.handshake.frames import Candidate, Proposal
from pscompy.control.rail_set import choices, joined
from pscompy.control.selection import Estimates, Option, Settings, candidates, parameters

PLAIN = Estimates(
    caps=0,
    max_bcopy=8192,
    max_zcopy=0,
    min_zcopy=0,
    max_put=0,
    max_get=0,
    latency_ns=10_000,
    overhead_ns=1_000,
    bandwidth=2e9,
    copy_bandwidth=1e9,
    reg_ns=0,
)
NODE = PLAIN._replace(caps=selection.CAP_NODE | selection.CAP_GET, max_get=1 << 40, latency_ns=300)
SELF = PLAIN._replace(caps=selection.CAP_SELF)

HERE, THERE = identity("a"), identity("b")


def options(**changes: Option) -> list[Option]:
    made = {
        "tcp": Option("tcp", 1, 2, rails={0: 0}, estimates=PLAIN),
        "loop": Option("loop", 1, 100, rails={0: 1}, estimates=SELF),
        "shm": Option("shm", 1, 90, rails={0: 2}, estimates=NODE),
        "ib": Option("ib", 1, 30, reason="no device"),
    }
    return list((made | changes).values())


def test_order_is_by_user_then_built_in_priority() -> None:
    usable, absent = candidates(options(), HERE, THERE)
    assert [option.name for option in usable] == ["shm", "tcp"]
    assert absent == {
        "loop": "connects a session with itself only",
        "ib": "no device",
    }
    preferred = options(tcp=Option("tcp", 2, 2, rails={0: 0}, estimates=PLAIN))
    assert [option.name for option in candidates(preferred, HERE, THERE)[0]] == ["tcp", "shm"]


def test_zero_excludes_and_names_the_variable() -> None:
    off = options(shm=Option("shm", 0, 90, rails={0: 2}, estimates=NODE))
    usable, absent = candidates(off, HERE, THERE)
    assert [option.name for option in usable] == ["tcp"]
    assert absent["shm"] == "excluded by PSP_SHM=0"


@pytest.mark.parametrize(
    ("there", "word"),
    [(identity("b", host="boot-2"), "node"), (identity("b", user=7), "user")],
)
def test_a_node_transport_needs_the_node_and_the_user(there: object, word: str) -> None:
    usable, absent = candidates(options(), HERE, there)  # type: ignore[arg-type]
    assert [option.name for option in usable] == ["tcp"]
    assert word in absent["shm"]


def test_the_acceptor_goes_through_the_connectors_order() -> None:
    names = ("portals", "ib", "shm", "tcp")
    proposal = Proposal(tuple(Candidate(name, 1, b"") for name in names))
    off = options(shm=Option("shm", 0, 90, rails={0: 2}, estimates=NODE))
    assert chosen(proposal, off) == [
        ("portals", [], "no such transport"),
        ("ib", [], "no device"),
        ("shm", [], "excluded by PSP_SHM=0"),
        ("tcp", [(3, "tcp", 0)], ""),
    ]


def chosen(
    proposal: Proposal, options: list[Option], names: tuple[str, ...] = ()
) -> list[tuple[str, list[tuple[int, str, int]], str]]:
    """The acceptor's choices, with the index, transport and rail of each lane."""
    return [
        (name, [(pick.number, *pick.rail.key) for pick in picks], why)
        for name, picks, why in choices(proposal, options, HERE, THERE, names)
    ]


@pytest.mark.parametrize(
    ("proposed", "here", "indices"),
    [
        ([0, 1], {0: 5, 1: 6}, [0, 1]),
        ([0, 1], {1: 5}, [1]),
        ([1], {0: 5, 1: 6}, [0]),
        ([2, 1, 0], {0: 5, 2: 6}, [0, 2]),
        ([0, 0], {0: 5}, [1]),
        (list(range(9)), dict.fromkeys(range(9), 5), [0, 1, 2, 3]),
    ],
)
def test_rails_that_both_have_go_together(
    proposed: list[int], here: dict[int, int], indices: list[int]
) -> None:
    proposal = Proposal(tuple(Candidate("tcp", 1, b"", lane=rail) for rail in proposed))
    mine = options(tcp=Option("tcp", 1, 2, rails=here, estimates=PLAIN))
    assert chosen(proposal, mine) == [("tcp", [(it, "tcp", proposed[it]) for it in indices], "")]


def test_no_rail_in_common() -> None:
    proposal = Proposal((Candidate("tcp", 1, b"", lane=1), Candidate("shm", 1, b"")))
    assert chosen(proposal, options()) == [
        ("tcp", [], "has other rails"),
        ("shm", [(1, "shm", 0)], ""),
    ]


# ---- rails of several transports (PSP_RAILS) ----------------------------------------------------

WAYS = selection.CAP_PUT | selection.CAP_PUT_REMOTE | selection.CAP_GET
DIRECT = PLAIN._replace(caps=WAYS, max_put=1 << 30, max_get=1 << 30)
GM = Option("gm", 1, 50, rails={0: 3, 1: 4}, estimates=DIRECT)


def joint(*rails: tuple[str, int]) -> Proposal:
    """A proposal of these rails together, and then of each transport alone."""
    together = [Candidate(name, 1, b"", 1, rail) for name, rail in rails]
    alone = [Candidate(name, 1, b"", 0, rail) for name, rail in rails]
    return Proposal((*together, *alone))


@pytest.mark.parametrize("names", [("gm", "tcp"), ("tcp", "gm"), ("ib", "tcp", "gm")])
def test_rails_of_several_transports_go_together(names: tuple[str, ...]) -> None:
    mine = options(gm=GM)
    assert chosen(joint(("gm", 0), ("gm", 1), ("tcp", 0)), mine, names) == [
        ("PSP_RAILS", [(0, "gm", 0), (1, "gm", 1), (2, "tcp", 0)], ""),
        ("gm", [(3, "gm", 0), (4, "gm", 1)], ""),
        ("tcp", [(5, "tcp", 0)], ""),
    ]


@pytest.mark.parametrize(
    ("names", "changes", "why"),
    [
        ((), {}, "without gm: PSP_RAILS does not name it; without tcp: PSP_RAILS does not name it"),
        (("gm", "ib"), {}, "without tcp: PSP_RAILS does not name it"),
        (("tcp", "ib"), {}, "without gm: PSP_RAILS does not name it"),
        (
            ("gm", "tcp"),
            {"tcp": Option("tcp", 0, 2, rails={0: 0}, estimates=PLAIN)},
            "without tcp: excluded by PSP_TCP=0",
        ),
        (
            ("gm", "tcp"),
            {"tcp": Option("tcp", 1, 2, rails={1: 0}, estimates=PLAIN)},
            "without tcp: has other rails",
        ),
    ],
)
def test_one_transport_is_missing(
    names: tuple[str, ...], changes: dict[str, Option], why: str
) -> None:
    first, *_ = chosen(joint(("gm", 0), ("tcp", 0)), options(gm=GM, **changes), names)
    assert first == ("PSP_RAILS", [], why)


def test_two_of_three_transports_go_together() -> None:
    proposal = joint(("gm", 0), ("pigeon", 0), ("tcp", 0))
    first, *_ = chosen(proposal, options(gm=GM), ("gm", "pigeon", "tcp"))
    why = "without pigeon: no such transport"
    assert first == ("PSP_RAILS", [(0, "gm", 0), (2, "tcp", 0)], why)


def test_each_transport_has_a_lane() -> None:
    many = dict.fromkeys(range(4), 7)
    mine = options(gm=GM._replace(rails=many), tcp=Option("tcp", 1, 2, rails=many, estimates=PLAIN))
    rails = [(name, rail) for name in ("gm", "tcp") for rail in range(4)]
    (_, picks, _), *_ = chosen(joint(*rails), mine, ("gm", "tcp"))
    assert [rail for _, *rail in picks] == [["gm", 0], ["gm", 1], ["gm", 2], ["tcp", 0]]


def test_the_proposal_joins_usable_transports_only() -> None:
    usable, _ = candidates(options(gm=GM), HERE, THERE)
    assert [it.name for it in joined(usable, ("gm", "ib", "tcp"))] == ["gm", "tcp"]
    assert joined(usable, ("gm", "ib")) == []
    assert joined(usable, ("ib", "gm", "tcp")) == []
    assert joined(usable, ()) == []


@pytest.mark.parametrize(
    ("other_rate", "wish", "scheme", "said"),
    [
        (1e8, "auto", "get", "get"),  # gets over one lane are faster than copies over both
        (1e10, "auto", "am", "am"),
        (1e10, "get", "get", "get"),
        (1e8, "put", "put", "put"),
        (1e8, "am", "am", "am"),
    ],
)
def test_lanes_of_which_some_can_get(other_rate: float, wish: str, scheme: str, said: str) -> None:
    other = PLAIN._replace(
        caps=selection.CAP_AM_ZCOPY, max_zcopy=1 << 20, max_bcopy=2048, bandwidth=other_rate
    )
    for lanes in ((DIRECT, other), (other, DIRECT)):
        params = parameters(lanes[0], Settings(scheme=wish), lanes[1:])
        assert (params.rendezvous, params.scheme) == (scheme, said)
        assert params.eager_max <= other.max_bcopy  # any lane can send short messages
        assert params.fragment == selection.STRIPE_MAX


def test_lanes_that_all_can_get_leave_the_scheme_to_the_core() -> None:
    params = parameters(DIRECT, others=(DIRECT._replace(bandwidth=1e8),))
    assert (params.rendezvous, params.scheme) == ("get", "auto")


sizes = st.integers(1, 1 << 30)
rates = st.floats(1e6, 1e12)
times = st.floats(0, 1e6)
estimates = st.builds(
    Estimates,
    caps=st.integers(0, 0x1FF),
    max_bcopy=st.integers(1024, 1 << 24),
    max_zcopy=sizes,
    min_zcopy=sizes,
    max_put=sizes,
    max_get=sizes,
    latency_ns=times,
    overhead_ns=times,
    bandwidth=rates,
    copy_bandwidth=rates,
    reg_ns=times,
    pipeline=st.integers(0, 1 << 17),
)


@given(estimates)
def test_the_threshold_is_where_the_costs_cross(made: Estimates) -> None:
    params = parameters(made)
    room = made.max_bcopy - selection.HEADER_MAX
    if made.caps & selection.CAP_AM_ZCOPY:
        room = max(room, made.max_zcopy)
    room = min(room, selection.EAGER_LIMIT)
    assert 0 <= params.eager_max <= room

    def rendezvous_wins(nbytes: int) -> bool:
        eager = selection.eager_ns(made, nbytes)
        if made.caps & selection.CAP_AM_ZCOPY:
            eager = min(eager, selection.zcopy_ns(made, nbytes))
        return selection.rendezvous_ns(made, nbytes, params.rendezvous) < eager

    if params.eager_max:
        assert not rendezvous_wins(params.eager_max)
    if params.eager_max < min(room, selection.THRESHOLD_MAX):
        assert rendezvous_wins(params.eager_max + 1)


@given(estimates)
def test_copied_fragments_are_no_faster_than_an_eager_message(made: Estimates) -> None:
    """A rendezvous copies them as often, after two further control messages."""
    copies = made._replace(caps=made.caps & ~selection.CAP_AM_ZCOPY)
    longest = parameters(copies, Settings(scheme="am", rendezvous=INF)).eager_max
    assert parameters(copies, Settings(scheme="am")).eager_max == longest


@given(estimates, st.integers(0, 1 << 31))
def test_the_users_threshold_comes_first(made: Estimates, wish: int) -> None:
    params = parameters(made, Settings(rendezvous=wish))
    room = parameters(made, Settings(rendezvous=INF)).eager_max
    assert params.eager_max == min(room, max(0, wish - 1))


@pytest.mark.parametrize(
    ("caps", "wish", "scheme", "rendezvous"),
    [
        (0, "auto", "auto", "am"),
        (selection.CAP_PUT, "auto", "auto", "put"),
        (selection.CAP_PUT | selection.CAP_GET, "auto", "auto", "get"),
        (selection.CAP_PUT | selection.CAP_GET, "put", "put", "put"),
        (selection.CAP_PUT | selection.CAP_GET, "am", "am", "am"),
        (selection.CAP_PUT, "get", "am", "am"),
    ],
)
def test_schemes(caps: int, wish: str, scheme: str, rendezvous: str) -> None:
    able = PLAIN._replace(caps=caps, max_put=1 << 20, max_get=1 << 21)
    params = parameters(able, Settings(scheme=wish))
    assert (params.scheme, params.rendezvous) == (scheme, rendezvous)
    assert params.fragment == {"am": 8192 - 64, "put": 1 << 20, "get": 1 << 21}[rendezvous]


def test_a_stream_sends_eagerly_what_credit_allows() -> None:
    """A rendezvous of a stream saves no copy, and takes a round trip more."""
    stream = PLAIN._replace(caps=selection.CAP_AM_ZCOPY, max_zcopy=1 << 30, min_zcopy=4096)
    params = parameters(stream)
    assert (params.rendezvous, params.eager_max) == ("am", selection.EAGER_LIMIT)
    assert {it.protocol for it in selection.cost_table(stream, params)} >= {"eager zcopy"}


def test_messages_correct_the_estimates() -> None:
    exact = NODE._replace(reg_ns=100)
    assert selection.corrected(exact, selection.Moved(7, 1, 1), selection.Moved()) == exact
    copies = selection.Moved(8, 8 * 4096, 8 * 4096 * 2)
    twice_as_long = selection.Moved(10, 10 * 65536, 2 * 10 * (2 * 100 + 65536 // 2))
    made = selection.corrected(exact, copies, selection.Moved())
    assert (made.copy_bandwidth, made.copy_source) == (5e8, "corrected live")
    assert (made.bandwidth, made.source) == (exact.bandwidth, "declared")
    made = selection.corrected(exact, selection.Moved(), twice_as_long)
    assert (made.bandwidth, made.reg_ns, made.source) == (1e9, 200, "corrected live")
    assert made.copy_bandwidth == exact.copy_bandwidth


def test_the_loss_is_that_of_the_worst_size() -> None:
    params = parameters(NODE)
    assert selection.loss(NODE, params) == 1
    assert 1 < selection.loss(NODE._replace(copy_bandwidth=0.8e9), params) < selection.LOSS_MAX
    assert selection.loss(NODE._replace(copy_bandwidth=2e8), params) > 2


def test_pieces_shorten_an_eager_message() -> None:
    """The copies overlap but for the first piece, so that the threshold is higher."""
    pieces = NODE._replace(pipeline=1024)
    assert selection.eager_ns(pieces, 1024) == selection.eager_ns(NODE, 1024)
    alone = selection.eager_ns(NODE, 8192) - selection.eager_ns(NODE, 0)
    both = selection.eager_ns(pieces, 8192) - selection.eager_ns(pieces, 0)
    assert both / alone == pytest.approx((8192 + 1024) / (2 * 8192))
    assert parameters(pieces).eager_max > parameters(NODE).eager_max


def test_the_table_tells_what_a_message_of_each_size_does() -> None:
    params = parameters(NODE)
    table = selection.cost_table(NODE, params)
    protocols = {it.nbytes: it.protocol for it in table}
    assert protocols[params.eager_max] == "eager bcopy"
    assert protocols[params.eager_max + 1] == "rendezvous get"
    times = [it.ns for it in table if it.protocol == "rendezvous get"]
    assert times == sorted(times)
    assert {1 << 10, 64 << 20} <= protocols.keys()
    for it in table:
        if it.nbytes not in (params.eager_max, params.eager_max + 1):
            assert it.ns <= min(it.others.values(), default=it.ns), it


def test_a_transport_of_lower_priority_that_is_faster() -> None:
    gain = selection.faster(PLAIN, parameters(PLAIN), NODE)
    assert gain is not None
    factor, nbytes = gain
    ours = {it.nbytes: it.ns for it in selection.cost_table(PLAIN, parameters(PLAIN))}
    assert nbytes == parameters(PLAIN).eager_max + 1  # from there on, a rendezvous by messages
    theirs = selection.eager_ns(NODE, nbytes), selection.rendezvous_ns(NODE, nbytes, "get")
    assert factor == pytest.approx(ours[nbytes] / min(theirs))
    assert factor > selection.FASTER
    assert selection.faster(NODE, parameters(NODE), PLAIN) is None
    slightly = PLAIN._replace(latency_ns=6_000)
    assert selection.faster(PLAIN, parameters(PLAIN), slightly) is None
