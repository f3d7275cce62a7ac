"""The uUAR that a QP is assigned to: appendix B of the paper, figures 4(b) and 16."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pscompy.cli.endpoint_model import Policy, Sharing, levels


def assigned(policy: Policy, qps: int) -> list[int]:
    return list(islice(policy.static(), qps))


def test_the_default_context_has_8_uars_and_16_uuars_of_which_4_have_low_latency():
    policy = Policy()
    kinds = [policy.kind(uuar) for uuar in range(17)]
    assert policy.uars == 8
    assert kinds == ["high", *["medium"] * 11, *["low"] * 4, "dynamic"]


def test_figure_16():
    policy = Policy(total_uuars=6, low_latency_uuars=2)
    assert assigned(policy, 7) == [4, 5, 1, 2, 3, 1, 2]
    # The first TD of a pair allocates a UAR, the second uses its other uUAR: UARs 3, 3 and 4.
    assert list(islice(policy.dynamic(Sharing.UAR), 3)) == [6, 7, 8]


def test_of_16_qps_the_5th_and_the_16th_share_a_uuar_and_the_others_a_uar():
    uuars = assigned(Policy(), 16)
    assert uuars[5 - 1] == uuars[16 - 1] == 1
    shared = [number for number, level in enumerate(levels(uuars), 1) if level == Sharing.UUAR]
    assert shared == [5, 16]
    assert Counter(levels(uuars)) == {Sharing.UAR: 14, Sharing.UUAR: 2}


def test_of_32_qps_28_share_their_uuar():
    assert Counter(levels(assigned(Policy(), 32))) == {Sharing.UAR: 4, Sharing.UUAR: 28}


def test_of_8_qps_the_5th_and_the_8th_share_nothing():
    found = levels(assigned(Policy(), 8))
    assert [n for n, level in enumerate(found, 1) if level == Sharing.INDEPENDENT] == [5, 8]


def test_the_high_latency_uuar_takes_qps_if_all_but_it_have_low_latency():
    assert assigned(Policy(16, 15), 18) == [*range(1, 16), 0, 0, 0]


def test_without_low_latency_uuars_the_medium_ones_take_turns():
    assert assigned(Policy(4, 0), 7) == [1, 2, 3, 1, 2, 3, 1]


def test_an_independent_domain_takes_a_uar():
    uuars = list(islice(Policy().dynamic(Sharing.INDEPENDENT), 16))
    assert len({uuar // 2 for uuar in uuars}) == 16
    assert set(levels(uuars)) == {Sharing.INDEPENDENT}


def test_domains_that_share_are_two_on_a_uar():
    uuars = list(islice(Policy().dynamic(Sharing.UAR), 5))
    assert [uuar // 2 for uuar in uuars] == [8, 8, 9, 9, 10]
    assert [int(level) for level in levels(uuars)] == [2, 2, 2, 2, 1]


@pytest.mark.parametrize(
    ("total", "low", "message"),
    [
        (16, 16, "0 to 15, all but one of 16"),
        (16, -1, "0 to 15, all but one of 16"),
        (7, 4, "a UAR has two"),
        (0, 0, "a UAR has two"),
    ],
)
def test_what_cannot_be(total, low, message):
    with pytest.raises(ValueError, match=message):
        Policy(total, low)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    total = 2 * draw(st.integers(1, 40))
    return Policy(total, draw(st.integers(0, total - 1)))


@given(policies(), st.integers(0, 300))
def test_any_policy_fills_low_latency_once_and_the_rest_evenly(policy, qps):
    uuars = assigned(policy, qps)
    low, rest = uuars[: policy.low_latency_uuars], uuars[policy.low_latency_uuars :]
    assert len(set(low)) == len(low)
    assert {policy.kind(uuar) for uuar in low} <= {"low"}
    medium = policy.total_uuars - policy.low_latency_uuars - 1
    assert {policy.kind(uuar) for uuar in rest} <= {"medium" if medium else "high"}
    loads = Counter(rest).values()
    assert not loads or max(loads) - min(loads) <= 1
    assert len(loads) == min(len(rest), max(medium, 1))
