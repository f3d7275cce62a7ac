"""The rank of this process by environment variables: by pscompy's own, or by those of torchrun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pscompy.config.config import Config
from pscompy.control.addresses import PORT_MAX
from pscompy.errors import ConfigError


class Membership(NamedTuple):
    """This process's rank, and the place of the store. `variable` names the variable that changes
    the place of the store."""

    rank: int
    size: int
    host: str
    port: int
    variable: str

    def __str__(self) -> str:
        return f"the store of rank 0 at {self.host}:{self.port}"


def by_own_variables(config: Config) -> Membership | None:
    """Read PSP_RANK, PSP_SIZE and PSP_STORE; returns None if they are not set. Size 1 needs no
    store."""
    names = ("RANK", "SIZE", "STORE")
    rank, size, place = (config[name] for name in names)
    if size == 1:
        return Membership(0, 1, "", 0, "")
    if rank < 0 and size < 0 and not place:
        return None
    host, _, port = place.rpartition(":")
    if not (0 <= rank < size and host and port.isdecimal() and 0 < int(port) <= PORT_MAX):
        raise _incomplete(config, names)
    return Membership(rank, size, host.strip("[]"), int(port), "PSP_STORE")


def _incomplete(config: Config, names: Sequence[str]) -> ConfigError:
    texts = {it.name: it.text for it in config.settings("")}
    missing = [f"PSP_{name}" for name in names if config.origin(name) == "default"]
    given = [f"PSP_{name}={texts[name]}" for name in names if f"PSP_{name}" not in missing]
    return ConfigError(
        f"{' '.join(given)}: a job needs all three of PSP_RANK, PSP_SIZE and PSP_STORE, a rank"
        " below the size, and HOST:PORT of rank 0, a port from 1 to 65535"
        + "".join(f"; {name} is not set" for name in missing),
        name=missing[0] if missing else "PSP_STORE",
    )


def by_torchrun(environ: Mapping[str, str], config: Config) -> Membership | None:
    """Read RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which torchrun sets; returns None without
    them."""
    names = ("RANK", "WORLD_SIZE", "MASTER_PORT")
    if not all(name in environ for name in (*names, "MASTER_ADDR")):
        return None
    try:
        rank, size, master = (int(environ[name]) for name in names)
    except ValueError:
        given = " ".join(f"{name}={environ[name]!r}" for name in names)
        raise ConfigError(f"{given}: not numbers", name="RANK") from None
    port = config["STORE_PORT"] if config["STORE_PORT"] > 0 else port_beside(master)
    return Membership(rank, size, environ["MASTER_ADDR"], port, "PSP_STORE_PORT")


def port_beside(master: int) -> int:
    """Return the port of pscompy's store for a job of torchrun, whose own store holds port
    `master`: another port, the same on all ranks, and below the ports that the kernel gives to
    outgoing connections."""
    return 0x4000 | ((master ^ 0x2000) & 0x3FFF)
