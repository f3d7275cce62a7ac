"""Topologies: none yet; Dims_create stands alone."""

from __future__ import annotations

from pscompy_mpi import constants
from pscompy_mpi.communicators import Comm


def topo_test(comm: Comm) -> int:
    return constants.UNDEFINED
