"""The explanation of a connection: candidates, choice, reasons, thresholds, variables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pscompy.config.parsers import INF
from pscompy.control.selection import (
    CAP_EXPOSE,
    CAP_FORK,
    CAP_GET,
    CAP_MAP,
    CAP_PUT,
    CAP_PUT_AM,
    RAILS,
    Cost,
    Estimates,
    Option,
    Params,
    cost_table,
    ordered,
)

WHOLE = 1 << 40  # from this length of fragments on, no message is split
AT_A_FORK = "registered for each message, as this kernel does not copy registered pages at a fork"


Rails = tuple[tuple[str, int], ...]
"""The transport, and the number among its rails, of each lane of a connection."""


class Explanation(NamedTuple):
    """The result of `connection.explain()`: `str` for people, `as_dict` for programs.

    `candidates` are all transports that were considered, in order; `reasons` says why each one
    that is not used was rejected, and on which side, and which rails the chosen one does without.

    The record of a connection keeps what is known when connecting has ended: the proposed
    candidates, `rails`, `reasons`, `lost`, `params`, `matching`, `estimates` and `note`.
    `Tuning.explain` completes that for `connection.explain()`.
    """

    candidates: tuple[str, ...] = ()
    rails: Rails = ()  # the rails with which the connection was made
    reasons: Mapping[str, str] = MappingProxyType({})
    # name of each transport of lower priority that is estimated to be faster -> how many times as
    # fast it is at best, and the length in bytes of the message with which it is that fast
    faster: Mapping[str, tuple[float, int]] = MappingProxyType({})
    # index in `rails` of each lane that the connection has lost -> the reason
    lost: Mapping[int, str] = MappingProxyType({})
    params: Params | None = None
    # why software, not the fabric, matches messages ("" if unknown); None if the fabric does
    matching: str | None = ""
    estimates: Estimates | None = None
    # length in bytes of the shortest receive that the peer can see and fill (PSP_TUPLEQ); None if
    # it sees none
    shown_from: int | None = None
    # why no message announces long receives to the sender (PSP_TUPLEQ=1); "" if messages do
    untold: str = ""
    thread: bool = False  # a thread makes progress while the program computes
    peer: str = ""
    note: str = ""
    worker: str = ""  # the communicators that share the worker, and so its lock and progress

    @property
    def choice(self) -> str:
        """The transport that was chosen: that of the first rail; "" before the connection is up."""
        return self.rails[0][0] if self.rails else ""

    @property
    def lanes(self) -> int:
        """The number of lanes with which the connection was made."""
        return len(self.rails)

    @property
    def transports(self) -> str:
        """The transports of the connection, joined by +."""
        return "+".join(dict(self.rails))

    def rail(self, lane: int) -> str:
        """Return the rail of this lane, for people."""
        name, number = self.rails[lane]
        return f"rail {number} of {name}"

    @property
    def eager_max(self) -> int | None:
        """The longest message that is sent eagerly; None before the connection is up."""
        return self.params.eager_max if self.params else None

    def as_dict(self) -> dict[str, Any]:
        params = self.params
        return {
            "peer": self.peer,
            "candidates": list(self.candidates),
            "choice": self.choice,
            "lanes": self.lanes,
            "rails": [list(rail) for rail in self.rails],
            "faster": dict(self.faster),
            "lost": dict(self.lost),
            "reasons": dict(self.reasons),
            "eager_max": self.eager_max,
            "zcopy_min": params and params.zcopy_min,
            "rendezvous": params and params.rendezvous,
            "fragment": params and params.fragment,
            "costs": [it._asdict() for it in self.table()],
            "estimates": self.estimates and self.estimates.sources(),
            "lends": self.lends,
            "keeps_registrations": self.keeps_registrations,
            "shown_from": self.shown_from,
            "untold": self.untold,
            "worker": self.worker,
            "matching": "fabric" if self.matching is None else "software",
            "matching_reason": self.matching or "",
            "variables": self.variables(),
        }

    @property
    def lends(self) -> bool:
        """Whether the peer reads a buffer that was lent to it (lend=True) in place; otherwise the
        buffer is copied."""
        return self._can(CAP_MAP)

    @property
    def keeps_registrations(self) -> bool:
        """Whether memory of received arrays is registered once; otherwise for each message, because
        registered pages do not survive a fork."""
        return self._can(CAP_FORK) or not self._can(CAP_PUT | CAP_GET)

    def _can(self, capability: int) -> bool:
        return self.estimates is not None and bool(self.estimates.caps & capability)

    def variables(self) -> dict[str, str]:
        """Return the configuration variables that would change the choice of transport, each with
        its effect."""
        changes = {
            f"PSP_{name.upper()}": f"priority of {name}, 0: never"
            for name in self.candidates
            if name != RAILS
        }
        if self.choice:
            changes[f"PSP_{self.choice.upper()}_RENDEZVOUS"] = "shortest rendezvous message"
            changes["PSP_RNDV_SCHEME"] = "how a rendezvous moves its data: auto, put, get or am"
        if self._can(CAP_EXPOSE) or self._can(CAP_PUT_AM):
            changes["PSP_TUPLEQ"] = "whether the peer sees long receives and fills them"
        if self.choice and not self.thread:
            changes["PSP_PROGRESS_THREAD"] = "1: messages move while the program computes"
        return changes

    def table(self) -> list[Cost]:
        """Return the estimated times of messages of 1 KiB to 64 MiB, and at the thresholds, by each
        protocol, and the one that is used; empty before the connection is up."""
        if self.params is None or self.estimates is None:
            return []
        return cost_table(self.estimates, self.params)

    def __str__(self) -> str:
        lines = [self._head()]
        for name in self.candidates:
            used = name in dict(self.rails)
            fate = self.reasons.get(name, "" if used else self._unneeded(name))
            if used:
                chosen = "chosen" if name == self.choice else f"joins {self.choice} ({RAILS})"
                fate = f"{chosen} {fate}".strip()
            lines.append(f"  {name}: {fate}")
        if self.transports != self.choice:
            lines += [f"  lane {lane}: {self.rail(lane)}" for lane in range(self.lanes)]
        lines += [f"  {self.rail(lane)} is lost: {why}" for lane, why in self.lost.items()]
        if self.params is not None:
            lines += _threshold_lines(self.params)
            lines += _cost_lines(self.table())
            lines += _source_lines(self.estimates)
            lines.append(f"  lent: {'read where it is' if self.lends else 'copied'}")
            if not self.keeps_registrations:
                lines.append(f"  memory of received arrays: {AT_A_FORK}")
            lines.append(f"  arrive while their receiver computes: {self._overlap()}")
            told = f"no ({self.untold})" if self.untold else "yes"
            lines.append(f"  long receives are told to the sender: {told}")
            lines.append(f"  matched: {_matching_text(self.matching)}")
            lines.append(f"  worker: of {self.worker}")
        lines += [f"  {name} sets: {effect}" for name, effect in self.variables().items()]
        return "\n".join(lines)

    def _overlap(self) -> str:
        """Return which messages arrive while their receiver computes."""
        if self.thread:
            return "all (by the progress thread)"
        if self.matching is None:
            return "those whose receives are posted (by the fabric)"
        if self.shown_from is not None:
            return f"those of at least {self.shown_from} bytes whose receives are posted"
        return "none"

    def _unneeded(self, name: str) -> str:
        if name not in self.faster:
            return "not needed"
        factor, nbytes = self.faster[name]
        return (
            f"not needed, although estimated to be {factor:.2g} times as fast for {nbytes} bytes"
            f" (PSP_{name.upper()} sets its priority)"
        )

    def _head(self) -> str:
        to = f" to {self.peer}" if self.peer else ""
        if self.choice:
            left = self.lanes - len(self.lost)
            rails = f", {left} rail{'s' * (left > 1)}" if self.lanes > 1 else ""
            return f"connection{to} over {self.transports}{rails}"
        return f"connection{to}: {self.note or 'not connected yet'}"


def _matching_text(why_not: str | None) -> str:
    if why_not is None:
        return "in the fabric"
    return f"in software ({why_not})" if why_not else "in software"


def _threshold_lines(params: Params) -> list[str]:
    lines = [f"  up to {params.eager_max} bytes: eager"]
    if params.zcopy_min < min(params.eager_max, INF):
        lines.append(f"  from {params.zcopy_min} bytes: eager without copy")
    pieces = f", pieces of {params.fragment} bytes" if params.fragment < WHOLE else ""
    return [*lines, f"  longer: rendezvous by {params.rendezvous}{pieces}"]


def _cost_lines(table: list[Cost]) -> list[str]:
    """Return the estimates in µs, a column for each protocol; the protocol that is used has a
    star."""
    if not table:
        return []
    rows = [(it.nbytes, it.protocol, {it.protocol: it.ns, **it.others}) for it in table]
    names = sorted({name for _, _, costs in rows for name in costs})
    lines = ["  estimated, µs" + "".join(f"{name:>18}" for name in names)]
    for nbytes, used, costs in rows:
        cells = (_cell(costs.get(name), name == used) for name in names)
        lines.append(f"  {nbytes:>13}" + "".join(f"{cell:>18}" for cell in cells))
    return lines


def _source_lines(estimates: Estimates | None) -> list[str]:
    """Return the lines that show the transport's estimates, and where each of them comes from."""
    if estimates is None:
        return []
    return [
        f"  {name}: {_amount(name, value)}, {source}"
        for name, (value, source) in estimates.sources().items()
    ]


def _amount(name: str, value: float) -> str:
    return f"{value:.0f} ns" if name.endswith("_ns") else f"{value / 1e9:.3g} GB/s"


def _cell(ns: float | None, used: bool) -> str:
    if ns is None:
        return ""
    text = f"{ns / 1e3:.3g}" if ns < 1e6 else f"{ns / 1e3:.0f}"
    return f"{text}{'*' if used else ' '}"


def considered(
    options: list[Option], proposed: tuple[str, ...], reasons: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the candidates of a connection: the transports in `proposed`, then all others of this
    side, then those of which only a reason is known."""
    others = [option.name for option in ordered(options) if option.name not in proposed]
    rest = [name for name in reasons if name not in proposed and name not in others]
    return (*proposed, *others, *rest)
