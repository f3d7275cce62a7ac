"""The parts of a session that a worker's lanes are made with."""

from __future__ import annotations

from typing import NamedTuple

from pscompy.control.handshake.identity import Identity
from pscompy.control.progress import Progress
from pscompy.control.worker import Worker


class LaneFactory(NamedTuple):
    """The parts of this session that make lanes and bring them up."""

    worker: Worker
    here: Identity
    progress: Progress
    candidate_seconds: float  # seconds for one candidate to come up
