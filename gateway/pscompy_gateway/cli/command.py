"""The command line of `pscompy gateway`."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pscompy import PscomError
from pscompy.config import parsers
from pscompy_gateway import policies
from pscompy_gateway.cli import report, service, topology_plot
from pscompy_gateway.daemon.daemon import Daemon, Fabric
from pscompy_gateway.transport import servers
from pscompy_gateway.trunk import BadFrame, Trunk, session

ANSWER_SECONDS = 10.0  # seconds for a gateway to send its status

_BYTES = parsers.size()

_EPILOG = """\
A fabric is TRANSPORT[+TRANSPORT...]@HOST[:PORT][,VARIABLE=VALUE...]: the transports to use in one
network, this machine's address there, and variables that override the environment there.
"""


def main(arguments: list[str]) -> int:
    """Run and query gateways, which connect modules that share no fabric."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.action(options))
    except PscomError as error:
        print(f"pscompy gateway: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="pscompy gateway", description=main.__doc__)
    actions = result.add_subparsers(required=True, metavar="ACTION")
    _add_running(actions)
    _add_asking(actions)
    return result


def _add(actions: Any, action: Callable[..., int], epilog: str = "") -> Any:
    """Add the parser of an action (a subcommand). Its help is the docstring of the function
    `action`."""
    name, text = action.__name__.strip("_"), action.__doc__
    result = actions.add_parser(name, help=text, description=text, epilog=epilog)
    result.set_defaults(action=action)
    return result


def _add_running(actions: Any) -> None:
    _add_gateway(_add(actions, _run, _EPILOG))
    start = _add(actions, _start, _EPILOG)
    _add_gateway(start)
    start.add_argument("--pid-file", type=Path, required=True, help="file for the process id")
    start.add_argument("--log", type=Path, help="file for the gateway's log")
    stop = _add(actions, _stop)
    stop.add_argument("--pid-file", type=Path, required=True, help="the file given to start")


def _add_gateway(run: argparse.ArgumentParser) -> None:
    run.add_argument("fabrics", nargs="+", type=_fabric, metavar="FABRIC")
    run.add_argument(
        "--neighbour",
        action="append",
        type=_neighbour,
        default=[],
        metavar="HOST:PORT",
        help="another gateway in one of these networks, which leads to further modules",
    )
    run.add_argument("--memory", type=_size, default=256 << 20, help="most bytes in flight [256M]")
    run.add_argument(
        "--share", type=_size, default=32 << 20, help="of these, bytes to one receiver [32M]"
    )
    run.add_argument(
        "--burden",
        type=_size,
        default=0,
        help="bytes added to the reported load, so that processes prefer other gateways [0]",
    )


def _add_asking(actions: Any) -> None:
    status = _add(actions, _status)
    status.add_argument("address", metavar="HOST:PORT")
    status.add_argument("--json", action="store_true", help="print JSON, for programs")
    drawing = _add(actions, _map)
    drawing.add_argument("addresses", nargs="+", metavar="HOST:PORT")
    drawing.add_argument("--out", type=Path, default=Path("gateways.png"), help="[gateways.png]")
    routes = _add(actions, _routes)
    routes.add_argument("policy", help=f"{', '.join(policies.OURS)}, or a Python file")
    for name, what in (("a", "nodes of one module"), ("b", "nodes of the other")):
        routes.add_argument(f"--{name}", nargs="+", required=True, metavar="NODE", help=what)
    routes.add_argument(
        "--gateways", nargs="+", required=True, type=_gateway, metavar="HOST:PORT", help="gateways"
    )


def _routes(options: argparse.Namespace) -> int:
    """Write a route file by a static policy: a line per pair of nodes, for PSP_GW_SERVER."""
    try:
        policy = policies.load(options.policy)
        for line in policies.route_file(policy, options.a, options.b, options.gateways):
            print(line)
    except policies.NoRoute as error:
        raise PscomError(str(error)) from error
    return 0


def _gateway(text: str) -> str:
    if not servers.is_address(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return text


def _neighbour(text: str) -> str:
    if "," in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not one HOST:PORT")
    return _gateway(text)


def _fabric(text: str) -> Fabric:
    try:
        return Fabric.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _size(text: str) -> int:
    try:
        return int(_BYTES(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size") from None


def _warn_of_one_network(options: argparse.Namespace) -> None:
    if len(options.fabrics) == 1 and not options.neighbour:
        print(
            f"pscompy gateway: warning: {options.fabrics[0]} is the only network, and there is no"
            " --neighbour: a gateway joins modules by an argument for the network of each",
            file=sys.stderr,
        )


def _run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""

    _warn_of_one_network(options)

    async def serve() -> None:
        limits = options.memory, options.share, options.burden
        daemon = Daemon(options.fabrics, options.neighbour, *limits)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:  # ignored in the background of a shell
                # `add_signal_handler` loses a signal when others have filled the loop's wake-up
                # socket
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(daemon.stop))
        await daemon.run()

    asyncio.run(serve())
    return 0


def _status(options: argparse.Namespace) -> int:
    """Show the counters, connections and members of a gateway."""
    status = asyncio.run(_ask(options.address))
    print(json.dumps(status, indent=1) if options.json else "\n".join(report.table(status)))
    return 0


def _map(options: argparse.Namespace) -> int:
    """Draw modules, gateways, and the traffic of pairs of nodes through each gateway."""
    statuses = [asyncio.run(_ask(it)) for it in options.addresses]
    topology_plot.draw(statuses, options.out)
    print(f"wrote {options.out}")
    return 0


def _start(options: argparse.Namespace) -> int:
    """Serve in the background; returns once the gateway serves."""
    _warn_of_one_network(options)
    arguments = [f"--neighbour={it}" for it in options.neighbour]
    arguments += [f"--{it}={getattr(options, it)}" for it in ("memory", "share", "burden")]
    arguments += [str(fabric) for fabric in options.fabrics]
    print(service.start(arguments, options.pid_file, options.log))
    return 0


def _stop(options: argparse.Namespace) -> int:
    """Stop a gateway after it has sent all packets that it holds."""
    service.stop(options.pid_file)
    return 0


async def _ask(address: str) -> dict[str, Any]:
    """Ask a gateway for its status. Raises `PscomError`, also if no gateway answers there."""
    with session({}) as asking:
        connection = asking.connect(address)
        await connection.iopen()
        try:
            return await asyncio.wait_for(_status_over(Trunk(connection)), ANSWER_SECONDS)
        except (asyncio.TimeoutError, BadFrame, LookupError, TypeError, ValueError) as error:
            raise PscomError(f"{address} does not answer as a gateway does") from error


async def _status_over(trunk: Trunk) -> dict[str, Any]:
    """Return the status of the gateway at the other end, which arrives in pieces."""
    trunk.send({"kind": "status"})
    text, count = "", 1
    while count:
        piece = await trunk.receive()
        text += piece["text"]
        count = piece["count"] - piece["piece"] - 1
    status: dict[str, Any] = json.loads(text)
    return status
