"""The rank for want of which this one fails: its launcher then looks for the cause there."""

from __future__ import annotations

import re

from pscompy.errors import Closed, ConnectError, PeerLost, PscomError

_LACKING = (Closed, ConnectError, PeerLost)
# the peer of an error: "rank 1" before the peer is known, then the name of its session, which is
# its number, with its host and process
_PEER = re.compile(r"(?:rank )?(\d+)(?: \(.*)?", re.DOTALL)


def blamed_rank(error: BaseException | None) -> int | None:
    """Return the rank whose end has led to an exception, or to one that was handled when that was
    raised; None if there is none."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, _LACKING) and (rank := _rank_of(error)) is not None:
            return rank
        error = error.__cause__ or error.__context__
    return None


def _rank_of(error: PscomError) -> int | None:
    match = _PEER.fullmatch(error.peer or "")
    return int(match[1]) if match else None
