"""The environment of the ranks.

Beside the configuration this is the only place that reads os.environ: a
child's environment is the launcher's own, with few changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pscompy import installed

# What another launcher said to this process would mislead the ranks.
_FOREIGN = ("PMI_", "PMI2_", "PMIX_", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")


def job_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What all ranks share; makes the job's key unless one is given, and looks once for what each
    rank would look for."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    environ = {**inherited, **extra}
    if not environ.get("PSP_KEY") and not environ.get("PSP_KEY_FILE"):
        environ["PSP_KEY"] = os.urandom(32).hex()
    environ["PSP_INSTALLED"] = installed.pack()
    return environ


def rank_environment(job: Mapping[str, str], rank: int, size: int, pmi_fd: int) -> dict[str, str]:
    """What one rank gets; `pmi_fd` is its end of the PMI socket."""
    return {
        **job,
        "PMI_FD": str(pmi_fd),
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
        "MPI_LOCALRANKID": str(rank),
        "MPI_LOCALNRANKS": str(size),
    }
