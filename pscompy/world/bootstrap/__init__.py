"""Bootstrap: tells a process its rank, and the ranks each other's addresses.

`detect` returns the `Bootstrap` for the launcher's variables: PMI-1 under `pscompy run`, MPICH's
mpiexec and srun, PMIx under Open MPI's mpirun and srun, pscompy's own store under torchrun and
where PSP_RANK, PSP_SIZE and PSP_STORE are set, or rank 0 of 1 without a launcher. `attach` keeps
one Bootstrap for the whole process, because a rank can sign off at its launcher only once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import stat
import sys
from collections.abc import Mapping

from pscompy.config.config import Config, launcher_environment
from pscompy.config.standard_files import open_standard_files
from pscompy.config.variables import VARIABLES
from pscompy.errors import ConfigError, PscomError
from pscompy.world.bootstrap.blame import blamed_rank
from pscompy.world.bootstrap.join import Join
from pscompy.world.bootstrap.launcher import Bootstrap
from pscompy.world.bootstrap.membership import by_own_variables, by_torchrun
from pscompy.world.bootstrap.pmi1 import Pmi1
from pscompy.world.bootstrap.single import Single

__all__ = ["Bootstrap", "Pmi1", "Single", "attach", "detect", "join_up", "launched"]

_REMEDY = (
    "start it with `pscompy run`, mpiexec, or srun --mpi=pmi2 or --mpi=pmix, or set PSP_RANK,"
    " PSP_SIZE and PSP_STORE; PSP_SIZE=1 runs each process alone"
)

# Variables that launchers set for each task: its rank, and the number of tasks (None: the launcher
# does not set it).
_TASKS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PALS_RANKID", None),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    # not SLURM_NTASKS, which counts the tasks of an allocation
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
)

_attached: tuple[int, Bootstrap] | None = None  # this process's id and bootstrap


def attach(config: Mapping[str, object] | None = None) -> Bootstrap:
    """Return the bootstrap of this process, always the same; it is finalised at exit.

    `ConfigError` as for `detect`, or if the process was forked from a rank. If PSP_JOIN is set,
    raises the errors of `Joined`, too.
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
    open_standard_files()
    bootstrap = join_up(detect(config=config), config)
    # atexit calls the latest handler first: sessions are closed after `_finalize`
    if _attached is None:
        atexit.register(_finalize)
    _attached = os.getpid(), bootstrap
    return bootstrap


def join_up(
    bootstrap: Bootstrap, config: Mapping[str, object] | None, join: str | None = None
) -> Bootstrap:
    """Return the bootstrap of the larger job if PSP_JOIN, or `join`, names one; else the given one.

    Raises the errors of `Join.wanted` and `Joined`.
    """
    wanted = Join.wanted(config, join)
    if wanted is None:
        return bootstrap
    from pscompy.world.bootstrap.joined_jobs import Joined

    return Joined(bootstrap, wanted)


def _finalize() -> None:
    pid, bootstrap = _attached or (0, None)
    if bootstrap is None or pid != os.getpid():
        return
    with contextlib.suppress(PscomError):  # the launcher may be gone
        bootstrap.finalize(blamed_rank(getattr(sys, "last_value", None)))


def launched() -> bool:
    """Return whether the variables of a launcher are in the environment."""
    environ, own = launcher_environment(), Config({"": VARIABLES})
    member = by_own_variables(own) or by_torchrun(environ, own)
    return _speaks_pmi(environ) or (member is not None and member.size > 1)


def detect(
    environ: Mapping[str, str] | None = None, config: Mapping[str, object] | None = None
) -> Bootstrap:
    """Return a bootstrap for this process; `environ` are the launcher's variables (default: this
    process's), `config` overrides variables that begin with PSP_.

    `ConfigError` if there is a launcher that pscompy cannot talk to. Raises the errors of
    `store.enter`, too.
    """
    own = Config({"": VARIABLES}, config, environ)
    environ = launcher_environment() if environ is None else environ
    member = by_own_variables(own)
    # torchrun's variables precede PMI only if torchrun has set them, perhaps as a task of srun:
    # other programs set the same variables from the values of PMI.
    if member is None and ("TORCHELASTIC_RUN_ID" in environ or not _speaks_pmi(environ)):
        member = by_torchrun(environ, own)
    if member is not None:
        if member.size == 1:
            return Single()
        # imported late, because only ranks without a launcher need it
        from pscompy.world.bootstrap.store import enter

        return enter(member, own)
    return _by_launcher(environ)


def _speaks_pmi(environ: Mapping[str, str]) -> bool:
    return any(name in environ for name in ("PMI_FD", "PMI_PORT", "PMIX_NAMESPACE"))


def _by_launcher(environ: Mapping[str, str]) -> Bootstrap:
    if "PMI_FD" in environ:
        return _from_descriptor(environ)
    if "PMI_PORT" in environ:
        host, _, port = environ["PMI_PORT"].rpartition(":")
        return Pmi1.connect(host, _number(environ, "PMI_PORT", port), _number(environ, "PMI_ID"))
    if "PMIX_RANK" in environ and "PMIX_NAMESPACE" in environ:
        # imported late, because it parses C declarations
        from pscompy.world.bootstrap.pmix import Pmix

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
            " environment on; set PSP_SIZE=1 to run it alone",
            name="PMI_FD",
            value=environ["PMI_FD"],
        )
    return Pmi1(descriptor, _number(environ, "PMI_RANK"), _number(environ, "PMI_SIZE"))


def _refuse_strangers(environ: Mapping[str, str]) -> None:
    """Raise ConfigError instead of running n separate Worlds of one rank each."""
    for rank, size in _TASKS:
        tasks = environ.get(size, "1") if size else "several"
        if tasks != "1" and (size or rank) in environ:
            seen = " ".join(f"{it}={environ[it]}" for it in (rank, size) if it and it in environ)
            raise ConfigError(
                f"{seen}: a launcher has started {tasks} tasks, and offers this one no PMI that"
                f" pscompy knows: {_REMEDY}",
                name=rank,
                value=environ.get(rank),
            )


def _number(environ: Mapping[str, str], name: str, text: str | None = None) -> int:
    text = environ.get(name, "") if text is None else text
    if text.isdecimal():
        return int(text)
    raise ConfigError(
        f"{name}={environ.get(name)!r}: the launcher's variable is missing or no number",
        name=name,
        value=environ.get(name),
    )
