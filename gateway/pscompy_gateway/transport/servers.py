"""PSP_GW_SERVER: the list of gateways, and which gateway serves which pair of nodes.

The variable holds addresses, `HOST:PORT HOST:PORT ...`, or the name of a route file in
ParaStation's format, with one line `GATEWAY:PORT NODE_A NODE_B` per pair of nodes. A gateway that
has an address in each module is written with all of them, separated by commas.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class BadRoutes(ValueError):
    """PSP_GW_SERVER, or the route file that it names, is malformed."""


class Routes(NamedTuple):
    """The addresses of all gateways, in order, and for each pair of nodes (in either order) the
    index of its gateway. If `pairs` is empty, any gateway serves any pair."""

    gateways: tuple[str, ...]
    pairs: Mapping[frozenset[str], int]

    def between(self, here: set[str], there: set[str]) -> int | None:
        """Return the index of the gateway for two processes, given all names of their nodes; None
        if the route file names no gateway for them."""
        for mine in here:
            for other in there:
                index = self.pairs.get(frozenset((mine, other)))
                if index is not None:
                    return index
        return None


PORT_MAX = 65535
PATHS_MAX = 32  # must equal GW_PATHS_MAX in agent.h


def parse(value: str) -> Routes:
    """Parse PSP_GW_SERVER. Raises `BadRoutes` if it or its route file is malformed, if the file
    cannot be read, or if there is no gateway or more than PATHS_MAX."""
    words = value.split()
    if len(words) == 1 and ("/" in value or Path(value).is_file()):
        routes = read(Path(value))
    else:
        routes = Routes(tuple(words), {})
        _check_addresses(words)
    if not routes.gateways:
        raise BadRoutes("PSP_GW_SERVER, or the route file that it names, names no gateway")
    if len(routes.gateways) > PATHS_MAX:
        raise BadRoutes(
            f"PSP_GW_SERVER names {len(routes.gateways)} gateways, more than {PATHS_MAX}"
        )
    return routes


def _check_addresses(words: list[str]) -> None:
    for word in words:
        if not is_address(word):
            raise BadRoutes(
                f"PSP_GW_SERVER names {word!r}, which is neither HOST:PORT nor a route file"
            )


def is_address(word: str) -> bool:
    """Whether the word names one gateway: one address HOST:PORT, or several with commas between
    them."""
    places = [place.rpartition(":") for place in word.split(",")]
    return all(host and _is_port(port) for host, _, port in places)


def _is_port(text: str) -> bool:
    decimal = text.isascii() and text.isdigit() and len(text) <= 5
    return decimal and 0 < int(text) <= PORT_MAX


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
        if len(words) != 3 or not is_address(words[0]):
            raise BadRoutes(f"{path}, line {number}: expected GATEWAY:PORT NODE_A NODE_B")
        if words[0] not in gateways:
            gateways.append(words[0])
        pairs[frozenset(words[1:])] = gateways.index(words[0])
    return Routes(tuple(gateways), pairs)
