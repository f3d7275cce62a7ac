"""The environment of the ranks.

Beside the configuration this is the only place that reads os.environ: a
child's environment is the launcher's own, with few changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

# What another launcher said to this process would mislead the ranks.
_FOREIGN = ("PMI_", "PMI2_", "PMIX_", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")


def job_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What all ranks share; makes the job's key unless one is given."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    environ = {**inherited, **extra}
    if not environ.get("PSP_KEY") and not environ.get("PSP_KEY_FILE"):
        from pscompy.control.handshake.keys import make_key

        environ["PSP_KEY"] = make_key()
    return environ


def rank_variables(rank: int, size: int) -> dict[str, str]:
    """What one rank gets beside that, but for PMI_FD, its descriptor of the PMI socket."""
    return {
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
        "MPI_LOCALRANKID": str(rank),
        "MPI_LOCALNRANKS": str(size),
    }


def nursery_environment(job: Mapping[str, str], folder: str, link: int) -> dict[str, str]:
    """For the process that the ranks are forked from."""
    paths = filter(None, (folder, job.get("PYTHONPATH")))
    return {**job, "PYTHONPATH": os.pathsep.join(paths), "PSP_NURSERY": str(link)}


def leave_nursery() -> int:
    """In that process: make its environment the job's, and give `link`."""
    _, _, rest = os.environ.pop("PYTHONPATH").partition(os.pathsep)
    if rest:
        os.environ["PYTHONPATH"] = rest
    return int(os.environ.pop("PSP_NURSERY"))


def enter_rank(variables: Iterable[str], pmi_fd: int) -> None:
    """In a process that was forked from it: take these variables (NAME=VALUE) on."""
    os.environ.update(word.partition("=")[::2] for word in variables)
    os.environ["PMI_FD"] = str(pmi_fd)
