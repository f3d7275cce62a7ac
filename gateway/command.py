"""`pscompy gateway`: its command line."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys

from gateway import policies
from gateway.daemon import Daemon, Fabric
from gateway.trunk import Trunk, session
from pscompy import PscomError, parsers

_EPILOG = """\
A fabric is TRANSPORT[+TRANSPORT...]@HOST[:PORT]: the transports to use in one network, and this
machine's address there.
"""


def main(arguments: list[str]) -> int:
    """Join modules that share no fabric."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.action(options))
    except PscomError as error:
        print(f"pscompy gateway: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="pscompy gateway", description=main.__doc__)
    actions = result.add_subparsers(required=True, metavar="ACTION")
    run = actions.add_parser(
        "run", help="serve until SIGTERM or Ctrl-C", epilog=_EPILOG, description=_run.__doc__
    )
    run.add_argument("fabrics", nargs="+", type=_fabric, metavar="FABRIC")
    run.add_argument(
        "--neighbour",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="another gateway in one of these networks, which leads to further modules",
    )
    run.add_argument("--memory", type=_size, default=256 << 20, help="bytes held in all [256M]")
    run.add_argument(
        "--share", type=_size, default=32 << 20, help="bytes held for one receiver [32M]"
    )
    run.set_defaults(action=_run)
    status = actions.add_parser("status", help="ask a gateway", description=_status.__doc__)
    status.add_argument("address", metavar="HOST:PORT")
    status.add_argument("--json", action="store_true", help="for programs")
    status.set_defaults(action=_status)
    routes = actions.add_parser("routes", help="write a route file", description=_routes.__doc__)
    routes.add_argument("policy", help=f"{', '.join(policies.OURS)}, or a file")
    for name, what in (("a", "nodes of one module"), ("b", "of the other"), ("gateways", "")):
        routes.add_argument(f"--{name}", nargs="+", required=True, help=what)
    routes.set_defaults(action=_routes)
    return result


def _routes(options: argparse.Namespace) -> int:
    """Write a route file by a static policy: a line per pair of nodes, for PSP_GW_SERVER."""
    try:
        policy = policies.load(options.policy)
        for line in policies.route_file(policy, options.a, options.b, options.gateways):
            print(line)
    except policies.NoRoute as error:
        raise PscomError(str(error)) from error
    return 0


def _fabric(text: str) -> Fabric:
    try:
        return Fabric.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _size(text: str) -> int:
    try:
        return int(parsers.nbytes(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size") from None


def _run(options: argparse.Namespace) -> int:
    """Serve in the foreground."""

    async def serve() -> None:
        daemon = Daemon(options.fabrics, options.neighbour, options.memory, options.share)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, daemon.stop)
        await daemon.run()

    asyncio.run(serve())
    return 0


def _status(options: argparse.Namespace) -> int:
    """Tell what a gateway does."""
    status = asyncio.run(_ask(options.address, {"kind": "status"}))
    print(json.dumps(status, indent=1))
    return 0


async def _ask(address: str, question: dict[str, object]) -> dict[str, object]:
    with session({}) as asking:
        connection = asking.connect(address)
        await connection.iopen()
        trunk = Trunk(connection)
        trunk.send(question)
        return await trunk.receive()
