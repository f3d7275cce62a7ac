"""The waits of a job's ranks, as they publish them at the launcher.

Only under a launcher whose values can be replaced and are seen at once (`Bootstrap.live`), such as
`pscompy run`, do ranks learn of the waits of others.
"""

from __future__ import annotations

import json
from typing import NamedTuple
from urllib.parse import quote, unquote

from pscompy.world.bootstrap.launcher import Bootstrap

# maximum length of a wait's text, in characters: the launcher stores longer values in several
# pieces
TEXT_MAX = 200
RANKS_MAX = 8
# maximum length of a worker's name in a key, in characters: the launcher limits the length of a key
WORKER_MAX = 32
_NONE = "-"  # the value that a rank publishes when it waits no longer


class Wait(NamedTuple):
    """A long wait of a rank: `id` distinguishes the waits of the rank, `beats` grows while the wait
    lasts, `ranks` are the ranks that must all act before it ends, `seconds` is its length when it
    was published."""

    id: int
    beats: int
    seconds: float
    ranks: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return f"has waited {self.seconds:.3g} s: {self.text}"


def key(rank: int, worker: str = "") -> str:
    """Return the name of the value that a rank publishes. `worker` names the worker of some
    endpoints; "" is the worker of the World."""
    return f"pscompy.wait.{rank}{worker[-WORKER_MAX:]}"


def pack(wait: Wait | None) -> str:
    if wait is None:
        return _NONE
    text = wait.text[:TEXT_MAX].encode("ascii", "replace").decode()
    return quote(json.dumps([*wait[:3], wait.ranks[:RANKS_MAX], text]))


def unpack(value: str) -> Wait | None:
    """Return the wait that a published value holds, None if the rank does not wait."""
    try:
        id, beats, seconds, ranks, text = json.loads(unquote(value))
        return Wait(int(id), int(beats), float(seconds), tuple(map(int, ranks)), str(text))
    except (TypeError, ValueError, OverflowError):  # json reads Infinity, which int refuses
        return None


def publish(bootstrap: Bootstrap, worker: str, wait: Wait | None) -> None:
    if bootstrap.live:
        bootstrap.put(key(bootstrap.rank, worker), pack(wait))


def read(bootstrap: Bootstrap, worker: str, rank: int) -> Wait | None:
    """Return the wait on this worker that a rank has published last, None if it does not wait."""
    if not bootstrap.live:
        return None
    try:
        return unpack(bootstrap.get(key(rank, worker), rank))
    except KeyError:
        return None
