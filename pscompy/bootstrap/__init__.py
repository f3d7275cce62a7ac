"""How a process learns its rank, and how ranks find each other's addresses.

`detect` looks at what the launcher told this process and gives the matching
`Bootstrap`: PMI-1 under `pscompy run`, MPICH's mpiexec and srun, or the only
rank of its own world where no launcher is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Protocol

from pscompy.bootstrap.pmi1 import Pmi1
from pscompy.bootstrap.single import Single
from pscompy.config import launcher_environment
from pscompy.errors import ConfigError

__all__ = ["Bootstrap", "Pmi1", "Single", "detect"]

_rank_process: int | None = None  # the one that has spoken to the launcher

_REMEDY = "start it with `pscompy run`, MPICH's mpiexec, or srun --mpi=pmi2"


class Bootstrap(Protocol):
    """The launcher, as one rank of a job sees it. Safe for several threads.

    PeerLost: the launcher is gone. ProtocolError: it says what nobody can
    understand.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def job_id(self) -> str:
        """A name that all ranks of this job share and no other job has."""

    def put(self, key: str, value: str) -> None:
        """Publish a value: ASCII without white space, of any length.

        The other ranks can get it after the next `barrier`.
        """

    def get(self, key: str) -> str:
        """The value that some rank published; KeyError: none did."""

    def barrier(self, timeout: float | None = None) -> None:
        """Wait until all ranks are here; `timeout` in seconds.

        Timeout: not all came; calling again goes on with the same barrier.
        PeerLost: it cannot complete because a rank has left.
        """

    def finalize(self) -> None:
        """Tell the launcher that this rank ends in order. Idempotent."""

    def abort(self, code: int) -> None:
        """Ask the launcher to end all ranks; returns before they have."""


def detect(environ: Mapping[str, str] | None = None) -> Bootstrap:
    """The bootstrap of this process; `environ`: the launcher's variables.

    ConfigError: there is a launcher, but none that pscompy can talk to.
    """
    environ = launcher_environment() if environ is None else environ
    _refuse_forks()
    if "PMI_FD" in environ:
        return _from_descriptor(environ)
    if "PMI_PORT" in environ:
        host, _, port = environ["PMI_PORT"].rpartition(":")
        return Pmi1.connect(host, _number(environ, "PMI_PORT", port), _number(environ, "PMI_ID"))
    _refuse_strangers(environ)
    return Single()


def _from_descriptor(environ: Mapping[str, str]) -> Pmi1:
    descriptor = _number(environ, "PMI_FD")
    try:
        is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        is_socket = False
    if not is_socket:
        raise ConfigError(
            f"PMI_FD={descriptor} is not open here: a rank started this process and handed its"
            " environment on; unset PMI_FD to run it alone",
            name="PMI_FD",
            value=environ["PMI_FD"],
        )
    return Pmi1(descriptor, _number(environ, "PMI_RANK"), _number(environ, "PMI_SIZE"))


def _refuse_forks() -> None:
    """Two processes with one line to the launcher would take each other's answers."""
    global _rank_process
    if _rank_process not in (None, os.getpid()):
        raise ConfigError(
            "this process was forked from a rank: only that rank is in the World;"
            " a Session can be opened here"
        )
    _rank_process = os.getpid()


def _refuse_strangers(environ: Mapping[str, str]) -> None:
    """Running n separate worlds of one rank is never what was meant."""
    if "PMIX_RANK" in environ:
        raise ConfigError(f"this launcher speaks PMIx, which pscompy does not: {_REMEDY}")
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "1")
    if "SLURM_STEP_ID" in environ and tasks != "1":
        raise ConfigError(f"this srun offers its {tasks} tasks no PMI: {_REMEDY}")


def _number(environ: Mapping[str, str], name: str, text: str | None = None) -> int:
    text = environ.get(name, "") if text is None else text
    if text.isdecimal():
        return int(text)
    raise ConfigError(
        f"{name}={environ.get(name)!r}: the launcher's variable is missing or no number",
        name=name,
        value=environ.get(name),
    )
