"""The numbers in the paper that the model computes from resources, and the model's own figures
for the others.

Zambre, Chandramowlishwaran, Balaji: "Scalable Communication Endpoints for MPI+Threads
Applications". K is 1024 bytes, and the paper's MB are MiB unless a test says otherwise.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pscompy.cli.endpoint_model import (
    CATEGORIES,
    CONTRADICTIONS,
    NAIVE,
    Policy,
    Sharing,
    hybrids,
    usage,
)
from pscompy.cli.endpoint_model.model import DEVICE_UARS, DYNAMIC_UARS, INDEPENDENT_PATHS, TABLE_I
from pscompy.cli.endpoint_model.paper import MEASURED_RATE

KIB, MIB = 1024, 1024**2
EVERYWHERE, DOUBLE, DYNAMIC, SHARED, STATIC, THREADS = CATEGORIES
SOFTWARE = TABLE_I["QP"] + TABLE_I["CQ"]


def contradiction(word):
    (found,) = (it for it in CONTRADICTIONS if word in it.about)
    return found


# ---- section III and figure 3 ----


def test_table_i():
    assert list(TABLE_I.values()) == [256 * KIB, 144, 144, 80 * KIB, 9 * KIB]
    assert sum(TABLE_I.values()) // KIB == 345


def test_an_endpoint_is_345k_or_354_kb():
    assert usage(EVERYWHERE, 1).memory_bytes == 345 * KIB
    assert round(100 * TABLE_I["CTX"] / (345 * KIB), 1) == 74.2
    assert sum(TABLE_I.values()) == 353_568  # 354 KB of 1000 bytes
    it = contradiction("one endpoint")
    assert (it.stated, it.counted) == ("354 KB", "345K, as in table I")


def test_figure_3():
    one, sixteen = usage(NAIVE, 1), usage(NAIVE, 16)
    assert (one.qp, one.cq, one.uar, one.uuar) == (1, 1, 9, 18)
    assert (sixteen.qp, sixteen.cq, sixteen.uar, sixteen.uuar) == (16, 16, 144, 288)
    assert SOFTWARE == 89 * KIB
    assert round(16 * SOFTWARE / MIB, 2) == 1.39


def test_a_naive_endpoint_wastes_94_percent_and_a_default_context_93_75():
    assert usage(NAIVE, 16).percent_wasted == pytest.approx(100 * 17 / 18)
    assert int(usage(NAIVE, 16).percent_wasted) == 94
    assert usage(EVERYWHERE, 1).percent_wasted == 93.75


def test_contexts_of_a_device():
    fit = DEVICE_UARS // usage(NAIVE, 1).uar
    assert fit == 910
    assert not usage(NAIVE, fit).exceeds
    assert usage(NAIVE, fit + 1).exceeds == ("8199 UARs on a device that has 8192",)
    it = contradiction("8K UARs")
    assert (it.stated, it.counted) == ("907", str(fit))
    assert {DEVICE_UARS - n for n in range(DEVICE_UARS) if n // 9 == 907} == set(range(21, 30))


# ---- section V: what sharing saves ----


def test_sharing_a_context():
    apart, shared = usage(NAIVE), usage(DYNAMIC)
    assert apart.uar / shared.uar == apart.uuar / shared.uuar == 6
    assert apart.uar / usage(SHARED).uar == 9
    assert (usage(DOUBLE).uuar, apart.uuar) == (80, 288)
    assert usage(DOUBLE).qp - shared.qp == 16
    assert [usage(it, 2).uar - usage(it, 1).uar for it in (NAIVE, DYNAMIC)] == [9, 1]
    assert usage(DYNAMIC).uar - 8 == 2 * (usage(SHARED).uar - 8)


def test_memory_that_sharing_a_context_saves():
    before, after = usage(NAIVE).memory_bytes, usage(DYNAMIC).memory_bytes
    assert f"{before / MIB:.2f} {after / MIB:.2f} {before / after:.2f}" == "5.39 1.64 3.29"
    assert round(5.15 / 0.35, 1) == 14.7
    it = contradiction("sharing a CTX")
    assert it.stated == "9x, from 5.15 MB to 0.35 MB"
    assert it.counted == "3.29x, from 5.39 MiB to 1.64 MiB"


def test_independent_paths():
    assert (DYNAMIC_UARS, INDEPENDENT_PATHS) == (512, 256)
    assert not usage(DYNAMIC, 256).exceeds
    assert usage(DYNAMIC, 257).exceeds == (
        "257 independent paths in a context, which can have 256",
    )
    assert not usage(DOUBLE, 128).exceeds
    assert usage(DOUBLE, 129).exceeds
    assert not usage(SHARED, 1024).exceeds
    assert usage(SHARED, 1025).exceeds == ("513 dynamic UARs in a context, which can have 512",)
    assert not usage(DYNAMIC, 512, ranks=2).exceeds
    assert usage(DYNAMIC, 512).uar - 8 == DYNAMIC_UARS
    it = contradiction("independent paths")
    assert (it.stated, it.counted) == (
        "256, half of the dynamic UARs",
        "512 by the limit of appendix B",
    )


def test_sharing_cqs_and_qps():
    assert round(16 * SOFTWARE / (16 * TABLE_I["QP"] + TABLE_I["CQ"]), 1) == 1.1
    both = [usage(it) for it in (STATIC, THREADS)]
    assert [it.qp * TABLE_I["QP"] + it.cq * TABLE_I["CQ"] for it in both] == [
        16 * SOFTWARE,
        SOFTWARE,
    ]


# ---- sections VI and VII, figure 12 ----


@pytest.mark.parametrize(
    ("category", "ctx", "qp", "cq", "uar", "uuar", "percent", "mib"),
    [
        (EVERYWHERE, 16, 16, 16, 128, 256, 100, "5.39"),
        (DOUBLE, 1, 32, 32, 40, 80, 31.25, "3.03"),
        (DYNAMIC, 1, 16, 16, 24, 48, 18.75, "1.64"),
        (SHARED, 1, 16, 16, 16, 32, 12.5, "1.64"),
        (STATIC, 1, 16, 16, 8, 16, 6.25, "1.64"),
        (THREADS, 1, 1, 1, 8, 16, 6.25, "0.34"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_figure_12(category, ctx, qp, cq, uar, uuar, percent, mib):
    it = usage(category, 16)
    assert (it.ctx, it.pd, it.mr, it.qp, it.cq) == (ctx, ctx, 16, qp, cq)
    assert (it.uar, it.uuar, it.percent_uuar) == (uar, uuar, percent)
    assert f"{it.memory_bytes / MIB:.2f}" == mib


def test_memory_of_2xdynamic():
    double, dynamic = usage(DOUBLE).memory_bytes, usage(DYNAMIC).memory_bytes
    assert dynamic == (256 + 16 * 89) * KIB
    assert double == (256 + 32 * 89) * KIB
    everywhere = usage(EVERYWHERE).memory_bytes
    assert everywhere == 16 * 345 * KIB
    assert (round(everywhere / double, 2), round(everywhere / dynamic, 2)) == (1.78, 3.29)
    it = contradiction("memory of 2xDynamic")
    assert (it.stated, it.counted) == ("1.64 MB", "3.03 MiB")
    it = contradiction("how much lower")
    assert (it.stated, it.counted) == ("3.27x", "1.78x")


def test_a_third_of_the_resources():
    everywhere, double = usage(EVERYWHERE), usage(DOUBLE)
    assert everywhere.uar / double.uar == everywhere.uuar / double.uuar == 3.2


def test_what_each_thread_wastes():
    def idle(category):
        """uUARs and QPs that no thread uses, apart from those that a new context has."""
        it = usage(category)
        return it.uuar - 16 - it.used_uuar, it.qp - sum(it.levels.values())

    assert idle(DOUBLE) == (3 * 16, 16)
    assert idle(DYNAMIC) == (16, 0)
    assert idle(SHARED) == (0, 0)


def test_what_static_leaves_unused():
    used = [usage(STATIC, threads).used_uuar for threads in range(1, 33)]
    assert used == [min(threads, 15) for threads in range(1, 33)]
    it = contradiction("Static")
    assert (it.stated, it.counted) == ("0", str(usage(STATIC, 16).uuar - used[15]))


@pytest.mark.parametrize(
    ("category", "levels"),
    [
        (EVERYWHERE, {1: 16}),
        (DOUBLE, {1: 16}),
        (DYNAMIC, {1: 16}),
        (SHARED, {2: 16}),
        (STATIC, {2: 14, 3: 2}),
        (THREADS, {4: 1}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_levels_of_sharing(category, levels):
    assert usage(category).levels == levels


def test_the_rates_that_were_measured():
    names = [category.name for category in CATEGORIES]
    assert list(MEASURED_RATE.items()) == list(zip(names, (100, 108, 94, 65, 64, 3), strict=True))


# ---- the stencil, figure 14b: two QPs per thread, one CQ for both ----


@pytest.mark.parametrize(("ranks", "each"), hybrids(16))
def test_figure_14b(ranks, each):
    rows = [usage(category, 16, ranks, qps_per_thread=2) for category in CATEGORIES]
    own = 8 * ranks
    assert [it.uar for it in rows] == [128, own + 64, own + 32, own + 16, own, own]
    assert [it.uuar for it in rows] == [2 * it.uar for it in rows]
    assert [it.qp for it in rows] == [32, 64, 32, 32, 32, 2 * ranks]
    assert [it.cq for it in rows] == [16, 32, 16, 16, 16, ranks]
    assert [it.ctx for it in rows] == [16, *[ranks] * 5]


def test_the_hybrids():
    assert hybrids(16) == [(16, 1), (8, 2), (4, 4), (2, 8), (1, 16)]
    assert hybrids(12) == [(12, 1), (6, 2), (3, 4), (1, 12)]
    assert hybrids(1) == [(1, 1)]


@pytest.mark.parametrize("category", CATEGORIES, ids=lambda it: it.name)
def test_with_one_thread_per_rank_nothing_is_shared(category):
    assert usage(category, 16, 16, qps_per_thread=2).levels == {1: 32}


def test_static_stencils():
    assert usage(STATIC, 16, 4, qps_per_thread=2).levels == {1: 8, 2: 24}
    assert usage(STATIC, 16, 1, qps_per_thread=2).levels == {2: 4, 3: 28}
    assert usage(SHARED, 16, 4, qps_per_thread=2).levels == {2: 32}


# ---- any number of threads ----


@given(
    ranks=st.integers(1, 20),
    each=st.integers(1, 20),
    qps=st.integers(1, 4),
    uars=st.integers(1, 20),
    data=st.data(),
)
def test_any_shape(ranks, each, qps, uars, data):
    low = data.draw(st.integers(0, 2 * uars - 1))
    threads, policy = ranks * each, Policy(2 * uars, low)
    rows = [usage(it, threads, ranks, qps, policy) for it in CATEGORIES]
    own, n = ranks * uars, each * qps
    added = [ranks * 2 * n, ranks * n, ranks * -(-n // 2), 0, 0]
    assert [it.uar for it in rows] == [threads * uars, *(own + it for it in added)]
    assert [it.qp for it in rows] == [ranks * it for it in (n, 2 * n, n, n, n, qps)]
    for it in rows:
        assert it.uuar == 2 * it.uar
        assert 0 < it.used_uuar <= min(it.uuar, it.qp)
        assert it.percent_uuar == pytest.approx(100 * it.uuar / rows[0].uuar)
        assert sum(it.levels.values()) == (it.qp // 2 if it is rows[1] else it.qp)
        assert set(it.levels) <= ({1} if each == 1 else set(map(int, Sharing)))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((16, 3), "16 threads cannot be divided evenly among 3 ranks"),
        ((0, 1), "positive"),
        ((1, 0), "positive"),
        ((1, 1, 0), "positive"),
    ],
)
def test_what_cannot_be(shape, message):
    with pytest.raises(ValueError, match=message):
        usage(STATIC, *shape)
