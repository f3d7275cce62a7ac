"""PSP_GW_SERVER: which gateways there are, and which of them serves whom.

Either addresses, `HOST:PORT HOST:PORT ...`; or the name of a route file in ParaStation's format,
one line `GATEWAY:PORT NODE_A NODE_B` per pair of nodes. A gateway that has an address in each
module is written with all of them, separated by commas.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class BadRoutes(ValueError):
    """A route file that cannot be understood."""


class Routes(NamedTuple):
    """`gateways` by their addresses, in order; `pairs` says which of them serves a pair of nodes
    (in either order), empty: any serves all."""

    gateways: tuple[str, ...]
    pairs: Mapping[frozenset[str], int]

    def between(self, here: set[str], there: set[str]) -> int | None:
        """The gateway for two processes, each known by several names of its node."""
        for mine in here:
            for other in there:
                index = self.pairs.get(frozenset((mine, other)))
                if index is not None:
                    return index
        return None


PATHS_MAX = 32  # GW_PATHS_MAX of agent.h


def parse(value: str) -> Routes:
    """What PSP_GW_SERVER says. `BadRoutes`: neither addresses nor a route file, or too many."""
    words = value.split()
    if len(words) == 1 and ("/" in value or Path(value).is_file()):
        routes = read(Path(value))
    else:
        routes = Routes(tuple(words), {})
    if len(routes.gateways) > PATHS_MAX:
        raise BadRoutes(
            f"PSP_GW_SERVER names {len(routes.gateways)} gateways, more than {PATHS_MAX}"
        )
    return routes


def read(path: Path) -> Routes:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRoutes(f"the route file {path} cannot be read: {error}") from error
    gateways: list[str] = []
    pairs: dict[frozenset[str], int] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or ":" not in words[0]:
            raise BadRoutes(f"{path}, line {number}: expected GATEWAY:PORT NODE_A NODE_B")
        if words[0] not in gateways:
            gateways.append(words[0])
        pairs[frozenset(words[1:])] = gateways.index(words[0])
    return Routes(tuple(gateways), pairs)
