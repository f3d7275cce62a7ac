"""The environment of the ranks.

Besides the configuration this is the only module that reads os.environ: the
environment of a rank is the launcher's own, with few changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

# Prefixes of variables that another launcher set for this process; they would mislead the ranks.
_FOREIGN = ("PMI_", "PMI2_", "PMIX_", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")


def job_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The variables that all ranks share: the launcher's own and `extra`, which takes precedence.

    Adds a new job key as PSP_KEY unless a key or a key file is given.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    environ = {**inherited, **extra}
    if not environ.get("PSP_KEY") and not environ.get("PSP_KEY_FILE"):
        from pscompy.control.handshake.keys import make_key

        environ["PSP_KEY"] = make_key()
    return environ


def rank_variables(rank: int, size: int) -> dict[str, str]:
    """The variables of one rank, except PMI_FD, which `Rank.start` adds."""
    return {
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
        "MPI_LOCALRANKID": str(rank),
        "MPI_LOCALNRANKS": str(size),
    }
