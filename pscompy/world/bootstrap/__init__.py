"""How a process learns its rank, and how ranks find each other's addresses.

`detect` looks at what the launcher told this process and gives the matching
`Bootstrap`: PMI-1 under `pscompy run`, MPICH's mpiexec and srun, PMIx under
Open MPI's mpirun and srun, or the only rank of its own world where no launcher
is. `attach` keeps one of them for the whole process, because a launcher takes
the farewell of a rank only once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import stat
from collections.abc import Mapping
from typing import Protocol

from pscompy.config.config import launcher_environment
from pscompy.errors import ConfigError, PscomError
from pscompy.world.bootstrap.join import join_up
from pscompy.world.bootstrap.pmi1 import Pmi1
from pscompy.world.bootstrap.single import Single

__all__ = ["Bootstrap", "Pmi1", "Single", "attach", "detect", "launched"]

_REMEDY = "start it with `pscompy run`, mpiexec, or srun --mpi=pmi2 or --mpi=pmix"


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

    def get(self, key: str, rank: int) -> str:
        """The value that this rank published; KeyError: it did not."""

    def barrier(self, timeout: float | None = None) -> None:
        """Wait until all ranks are here; `timeout` in seconds.

        Timeout: not all came; calling again goes on with the same barrier.
        PeerLost: it cannot complete because a rank has left.
        """

    def finalize(self) -> None:
        """Tell the launcher that this rank ends in order; the last call."""

    def abort(self, code: int) -> None:
        """Ask the launcher to end all ranks; returns before they have."""


_attached: tuple[int, Bootstrap] | None = None  # process id, and what it has


def attach(config: Mapping[str, object] | None = None) -> Bootstrap:
    """The bootstrap of this process, always the same; takes leave at exit.

    ConfigError: as `detect`, or the process was forked from a rank. Where PSP_JOIN is set, what
    `Joined` raises.
    """
    global _attached
    pid, known = _attached or (os.getpid(), None)
    if known is not None and pid == os.getpid():
        return known
    if known is not None and not isinstance(known, Single):
        raise ConfigError(
            f"this process was forked from rank {known.rank}: only that is in the World;"
            " a Session can be opened here"
        )
    bootstrap = join_up(detect(), config)
    _attached = os.getpid(), bootstrap
    return bootstrap


@atexit.register
def _take_leave() -> None:
    pid, bootstrap = _attached or (0, None)
    if bootstrap is None or pid != os.getpid():
        return
    with contextlib.suppress(PscomError):  # the launcher is gone, and so are we
        bootstrap.finalize()


def launched() -> bool:
    """Whether a launcher has started this process, for all that it has told."""
    environ = launcher_environment()
    return any(name in environ for name in ("PMI_FD", "PMI_PORT", "PMIX_NAMESPACE"))


def detect(environ: Mapping[str, str] | None = None) -> Bootstrap:
    """The bootstrap of this process; `environ`: the launcher's variables.

    ConfigError: there is a launcher, but none that pscompy can talk to.
    """
    environ = launcher_environment() if environ is None else environ
    if "PMI_FD" in environ:
        return _from_descriptor(environ)
    if "PMI_PORT" in environ:
        host, _, port = environ["PMI_PORT"].rpartition(":")
        return Pmi1.connect(host, _number(environ, "PMI_PORT", port), _number(environ, "PMI_ID"))
    if "PMIX_RANK" in environ and "PMIX_NAMESPACE" in environ:
        from pscompy.world.bootstrap.pmix import Pmix  # only here: it parses declarations

        return Pmix(environ)
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


def _refuse_strangers(environ: Mapping[str, str]) -> None:
    """Running n separate worlds of one rank is never what was meant."""
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
