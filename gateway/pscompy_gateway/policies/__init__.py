"""Static policies: choose beforehand which of n gateways serves a pair of nodes.

A policy is a module with ParaStation's signature,

    routeConnectionS(sizeA, sizeB, numGw, i, j) -> (error, gateway)

for node i of the sizeA nodes of one module and node j of the sizeB nodes of the other. A policy
that needs the names of the nodes has routeConnectionX(nodesA, nodesB, gateways, nodeA, nodeB) ->
(error, gateway) instead. `error` is None, or the reason why there is no route.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

OURS = ("plugin01", "plugin02", "plugin03")

Policy = Callable[[Sequence[str], Sequence[str], Sequence[str], int, int], str]
"""policy(nodes_a, nodes_b, gateways, i, j) returns the gateway for nodes i and j."""


class NoRoute(ValueError):
    """A policy does not exist, has no function of a policy, or found no gateway for a pair of
    nodes."""


def load(name: str) -> Policy:
    """Load a policy: one of OURS by its name, or a Python file. Raises `NoRoute` if there is none;
    the returned policy raises it too."""
    if name in OURS:
        module = importlib.import_module(f"{__name__}.{name}")
    else:
        spec = importlib.util.spec_from_file_location(Path(name).stem, name)
        if spec is None or spec.loader is None or not Path(name).is_file():
            raise NoRoute(f"no policy {name!r}: there are {', '.join(OURS)}, or give a file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    by_name = getattr(module, "routeConnectionX", None)
    by_number = getattr(module, "routeConnectionS", None)

    def choose(a: Sequence[str], b: Sequence[str], gateways: Sequence[str], i: int, j: int) -> str:
        if by_name is not None:
            error, gateway = by_name(a, b, gateways, a[i], b[j])
        elif by_number is not None:
            error, number = by_number(len(a), len(b), len(gateways), i, j)
            gateway = None if error else gateways[number]
        else:
            raise NoRoute(f"{name} has neither routeConnectionS nor routeConnectionX")
        if error:
            raise NoRoute(f"{a[i]} and {b[j]}: {error}")
        return str(gateway)

    return choose


def route_file(
    policy: Policy, a: Sequence[str], b: Sequence[str], gateways: Sequence[str]
) -> Iterator[str]:
    """Yield the lines of a route file for PSP_GW_SERVER. Raises `NoRoute`."""
    for i, node in enumerate(a):
        for j, other in enumerate(b):
            yield f"{policy(a, b, gateways, i, j)} {node} {other}"
