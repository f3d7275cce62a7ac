"""The resources of a device that the threads of a node use, in each category of endpoints.

Source: Zambre, Chandramowlishwaran, Balaji, table I and sections III, VI and VII. A category is a
row of CATEGORIES; `usage` assigns the QPs of one context by the policy and counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from pscompy.cli.endpoint_model.policy import UUARS_PER_UAR, Policy, Sharing, levels

KIB = 1024
# Bytes of memory that an object of the verbs library takes: table I of the paper by Zambre et al.
TABLE_I: Mapping[str, int] = {
    "CTX": 256 * KIB,
    "PD": 144,
    "MR": 144,
    "QP": 80 * KIB,
    "CQ": 9 * KIB,
}
DEVICE_UARS = 8192  # number of UARs of a ConnectX-4 device
DYNAMIC_UARS = 512  # maximum number of UARs that thread domains (TDs) can add to a context
# maximum number of TDs of a context without sharing; see CONTRADICTIONS
INDEPENDENT_PATHS = DYNAMIC_UARS // 2


@dataclass(frozen=True)
class Category:
    """The assignment of QPs, CQs and contexts to threads.

    `domain` is the level of sharing that the thread domains (TDs) of QPs request, None if QPs have
    no TD. With `own_context` each thread has a context, else each rank. `made` is the number of QPs
    created for each QP that is used. With `one_qp` all threads of a context use the same QPs.
    """

    name: str
    domain: Sharing | None = None
    own_context: bool = False
    made: int = 1
    one_qp: bool = False

    def uuars(self, policy: Policy) -> Iterator[int]:
        """The uUARs of the QPs of a context, in order of their creation; endless."""
        return policy.static() if self.domain is None else policy.dynamic(self.domain)


CATEGORIES = (
    Category("MPI everywhere", own_context=True),
    Category("2xDynamic", Sharing.INDEPENDENT, made=2),
    Category("Dynamic", Sharing.INDEPENDENT),
    Category("Shared Dynamic", Sharing.UAR),
    Category("Static"),
    Category("MPI+threads", one_qp=True),
)
# Sections III and IV of the paper, figure 3: each thread has a context with one TD.
NAIVE = Category("naive", Sharing.INDEPENDENT, own_context=True)


@dataclass(frozen=True)
class Usage:
    """The resources that all threads of a node use together. `levels` maps each level of Sharing to
    the number of QPs that threads use at it."""

    category: str
    threads: int
    ranks: int
    ctx: int
    pd: int
    mr: int
    qp: int
    cq: int
    uar: int
    uuar: int
    used_uuar: int
    percent_uuar: float  # uUARs in percent of those of MPI everywhere with as many threads
    levels: Mapping[int, int]
    exceeds: tuple[str, ...]  # descriptions of the limits of mlx5 that are exceeded

    @property
    def memory_bytes(self) -> int:
        """The bytes of contexts, QPs and CQs. As in the paper's sums, PDs and MRs are left out,
        which have 144 bytes each."""
        return self.ctx * TABLE_I["CTX"] + self.qp * TABLE_I["QP"] + self.cq * TABLE_I["CQ"]

    @property
    def percent_wasted(self) -> float:
        """The percentage of allocated uUARs that no thread uses."""
        return 100 * (self.uuar - self.used_uuar) / self.uuar

    def as_dict(self) -> dict[str, Any]:
        """The fields and the computed properties, by name."""
        computed = {"percent_wasted": self.percent_wasted, "memory_bytes": self.memory_bytes}
        return asdict(self) | computed


def usage(
    category: Category,
    threads: int = 16,
    ranks: int = 1,
    qps_per_thread: int = 1,
    policy: Policy | None = None,
) -> Usage:
    """Count the resources of `threads` threads, divided evenly among `ranks` ranks.

    The QPs of a thread share a CQ and a MR; a context has one PD. Raises `ValueError` if a number
    is not positive, or if the threads cannot be divided evenly.
    """
    if min(threads, ranks, qps_per_thread) < 1:
        raise ValueError("threads, ranks and QPs of a thread are positive numbers")
    if threads % ranks:
        raise ValueError(f"{threads} threads cannot be divided evenly among {ranks} ranks")
    policy = policy or Policy()
    contexts = threads if category.own_context else ranks
    sharers = threads // contexts
    ends = 1 if category.one_qp else sharers  # endpoints of a context, each with a CQ
    made = list(islice(category.uuars(policy), ends * qps_per_thread * category.made))
    used = made[:: category.made]
    brought = {uuar // UUARS_PER_UAR for uuar in made if policy.kind(uuar) == "dynamic"}
    uar = contexts * (policy.uars + len(brought))
    return Usage(
        category=category.name,
        threads=threads,
        ranks=ranks,
        ctx=contexts,
        pd=contexts,
        mr=threads,
        qp=contexts * len(made),
        cq=contexts * ends * category.made,
        uar=uar,
        uuar=uar * UUARS_PER_UAR,
        used_uuar=contexts * len(set(used)),
        percent_uuar=100 * uar / (threads * policy.uars),
        levels=_levels(category, sharers, contexts, used),
        exceeds=tuple(_exceeded(category, len(made), len(brought), uar)),
    )


def _levels(category: Category, sharers: int, contexts: int, uuars: list[int]) -> dict[int, int]:
    """Return the number of QPs by level of sharing. A thread that is alone in its context shares
    nothing."""
    if sharers == 1:
        found = [Sharing.INDEPENDENT] * len(uuars)
    else:
        found = [Sharing.QP] * len(uuars) if category.one_qp else levels(uuars)
    return {int(level): n * contexts for level, n in sorted(Counter(found).items())}


def _exceeded(category: Category, qps: int, brought: int, uar: int) -> Iterator[str]:
    if category.domain == Sharing.INDEPENDENT and qps > INDEPENDENT_PATHS:
        yield f"{qps} independent paths in a context, which can have {INDEPENDENT_PATHS}"
    elif brought > DYNAMIC_UARS:
        yield f"{brought} dynamic UARs in a context, which can have {DYNAMIC_UARS}"
    if uar > DEVICE_UARS:
        yield f"{uar} UARs on a device that has {DEVICE_UARS}"


def hybrids(threads: int) -> list[tuple[int, int]]:
    """The divisions of `threads` threads as (ranks, threads per rank), from one thread per rank to
    one rank, halving the ranks: (16, 1), (8, 2) ... (1, 16)."""
    ranks, found = threads, []
    while ranks > 1:
        found.append((ranks, threads // ranks))
        ranks = ranks // 2 if ranks % 2 == 0 else 1
    return [*found, (1, threads)]
