"""The environment of the ranks.

Besides the configuration this is the only module that reads os.environ: the
environment of a rank is the launcher's own, with few changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pscompy.config.variables import APART
from pscompy.errors import ConfigError

# Prefixes of variables that another launcher set for this process; they would mislead the ranks.
_FOREIGN = (
    *("PMI_", "PMI2_", "PMIX_", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    *("TORCHELASTIC_", "PSP_RANK", "PSP_SIZE", "PSP_STORE"),
)
# Prefixes of variables that belong to the launcher's host and login.
_OF_A_HOST = ("HOSTNAME", "SSH_", "XDG_RUNTIME_", "XDG_SESSION_", "DBUS_SESSION_")

# If one of these variables is set, the ranks get no new key of their own.
_KEEPS_THE_KEY = (
    *("PSP_KEY", "PSP_KEY_FILE", "PSP_JOIN"),
    *(f"PSP_{family}SERVER" for families in APART.values() for family in families),
)


def job_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that all ranks share: those of this process, except variables of another
    launcher, and `extra`, which takes precedence.

    Adds a new job key as PSP_KEY unless a key or a key file is given, or the ranks meet processes
    outside of the job (PSP_JOIN, a gateway), which know the user's key only.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    environ = {**inherited, **extra}
    if not any(environ.get(name) for name in _KEEPS_THE_KEY):
        from pscompy.control.handshake.keys import MARK, make_key, mark_of

        environ["PSP_KEY"] = key = make_key()
        environ[MARK] = mark_of(key)
    return environ


def with_mpi(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ranks on this host with those by which they get pscompy's MPI. Raises
    `ConfigError` if this host does not have it."""
    try:
        from pscompy_mpi import places

        return {**environ, **places.variables(environ)}
    except ImportError as error:
        raise ConfigError(f"--mpi: {error} (it is part of an installed pscompy)") from error


def on_this_host(environ: Mapping[str, str]) -> dict[str, str]:
    """Take on the job's variables in this process, an agent, so that it finds programs by the PATH
    of the job. Returns the environment of the ranks on this host."""
    os.environ.update({k: v for k, v in environ.items() if not k.startswith(_OF_A_HOST)})
    return dict(os.environ)


def batch_environment() -> Mapping[str, str]:
    """Return the variables among which a batch system describes its allocation."""
    return os.environ


def rank_variables(rank: int, size: int, local: int, on_host: int) -> dict[str, str]:
    """Return the variables of one rank, except PMI_FD, which `Rank.start` adds. The rank is number
    `local` of the `on_host` ranks on its host."""
    return {
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
        "MPI_LOCALRANKID": str(local),
        "MPI_LOCALNRANKS": str(on_host),
    }
