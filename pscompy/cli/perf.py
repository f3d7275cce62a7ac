"""`pscompy perf`: latency, bandwidth and message rate between two processes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pscompy import Connection, PscomError, Session, World
from pscompy.cli import contender, plot
from pscompy.cli.arguments import ArgumentParser, duration, picture, positive, words
from pscompy.cli.measure import BOTH_WAYS, LATENCY, STREAM, Job
from pscompy.cli.perf_pair import WINDOW_MAX, OwnPair, serve
from pscompy.cli.report import QUANTITIES, Report
from pscompy.cli.sampling import Pair, sample
from pscompy.config.parsers import INF, nbytes
from pscompy.discovery import registry
from pscompy.world.bootstrap import launched

_SIZES = "8,64,512,4k,32k,256k,2M"
_UP_SECONDS = 60.0
_EPILOG = """\
Without --listen or --connect the command starts the other process itself.
Between two machines, start `pscompy perf --listen` on one and pass the address
that it prints to --connect on the other. Within a job (`pscompy run -n 2 -m
pscompy perf`) ranks 0 and 1 are measured. Latency is half of a round trip of
blocking calls. Bandwidth and message rate are measured with windows of messages
that one side sends at once, bidirectional bandwidth with windows that both send.
"""


def main(arguments: list[str]) -> int:
    """Measure latency, bandwidth and message rate."""
    parser = _parser()
    options = parser.parse_args(arguments)
    config = _only(options.transport, parser) if options.transport else {}
    if launched():
        return _in_job(options, config, parser)
    if options.listen is not None:
        return _serve_all(options.listen, options.port, config)
    with ExitStack() as stack:
        peer = _connected(options.connect, config) if options.connect else _own_peer(config)
        connection = stack.enter_context(peer)
        pairs = [stack.enter_context(contender.installed(name)) for name in options.against]
        _measure(connection, pairs, options)
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="pscompy perf",
        description=main.__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--listen", nargs="?", const="", metavar="HOST", help="serve others until Ctrl-C"
    )
    where.add_argument("--connect", metavar="ADDRESS", help="measure to this listener")
    parser.add_argument("--port", type=int, default=0, help="port for --listen [a free one]")
    parser.add_argument("--transport", help="use only this transport [the best]")
    parser.add_argument(
        "--sizes", type=_sizes, default=_sizes(_SIZES), help=f"message sizes in bytes [{_SIZES}]"
    )
    parser.add_argument(
        "--only",
        type=_quantities,
        default=tuple(QUANTITIES),
        metavar="TEST,...",
        help=f"some of {', '.join(QUANTITIES)}",
    )
    parser.add_argument("--window", type=_window, default=64, help="messages in flight [64]")
    parser.add_argument(
        "--seconds", type=duration, default=0.5, help="for each size and test [0.5]"
    )
    parser.add_argument("--validate", action="store_true", help="check contents first")
    parser.add_argument(
        "--against", type=_names, default=(), help="compare with mpi4py, pipe or both"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument(
        "--plot", type=picture, metavar="FILE", help="also plot the results, as .png, .svg or .pdf"
    )
    return parser


def _sizes(text: str) -> list[int]:
    try:
        sizes = [nbytes(word) for word in text.split(",")]
    except ValueError:
        sizes = []
    if sizes and all(0 <= size < INF for size in sizes):
        return sizes
    raise argparse.ArgumentTypeError(f"{text!r} is no list of sizes such as 8,64k,4M")


def _window(text: str) -> int:
    messages = positive(text)
    if messages > WINDOW_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {WINDOW_MAX}")
    return messages


def _quantities(text: str) -> tuple[str, ...]:
    return words(text, tuple(QUANTITIES))


def _names(text: str) -> tuple[str, ...]:
    return words(text, contender.NAMES)


def _only(transport: str, parser: ArgumentParser) -> dict[str, int]:
    """Return variables that disable all transports except this one."""
    names = registry.transport_names()
    if transport not in names:
        parser.error(f"no transport {transport!r} (there are {', '.join(names)})")
    return {name.upper(): int(name == transport) for name in names}


# ---- the connection to measure ----


def _in_job(options: argparse.Namespace, config: dict[str, int], parser: ArgumentParser) -> int:
    """Measure between ranks 0 and 1 of a World; other ranks do nothing."""
    if options.listen is not None or options.connect or options.against:
        parser.error("--listen, --connect and --against are not for a job's ranks")
    with World(config=config) as world:
        if world.size < 2:
            parser.error("a job needs two ranks to measure between")
        if world.rank == 0:
            _measure(world[1], [], options)
        elif world.rank == 1:
            serve(world[0])
    return 0


def _serve_all(host: str, port: int, config: dict[str, int]) -> int:
    """Serve one active side after another, until Ctrl-C."""
    with Session(config=config) as session, session.listen(host or None, port) as sock:
        print(sock.address, flush=True)
        for connection in sock:
            with connection:
                try:
                    serve(connection, _UP_SECONDS)
                except PscomError as error:
                    _progress(str(error))
    return 0


@contextmanager
def _connected(address: str, config: dict[str, int]) -> Iterator[Connection]:
    with Session(config=config) as session, session.connect(address) as connection:
        connection.open(_UP_SECONDS)
        yield connection


@contextmanager
def _own_peer(config: dict[str, int]) -> Iterator[Connection]:
    """Start a passive process and connect to it. Raises `PscomError` if it does not start, or does
    not end."""
    command = [sys.executable, "-m", "pscompy.cli.perf_pair", json.dumps(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                raise PscomError("the other process does not start; its error is above")
            with _connected(address, config) as connection:
                yield connection
            process.wait(_UP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise PscomError("the other process does not end") from error
        finally:
            process.kill()


def _measure(connection: Connection, others: list[Any], options: argparse.Namespace) -> None:
    """Measure all sizes, and print the report."""
    if options.plot:
        plot.check()  # raises before the measurement, not after it
    own = OwnPair(connection)
    connection.open(_UP_SECONDS)
    pairs: list[Pair] = [own, *others]
    names = tuple(pair.name for pair in pairs)
    report = Report(own.transport, options.window, names, options.only)
    for size in options.sizes:
        if options.validate:
            report.validated += own.validate(size)
        report.rows[size] = _rows(pairs, size, options)
    own.close()
    print(report.as_json() if options.json else report.as_text())
    if options.plot:
        report.plot(options.plot)


def _rows(pairs: list[Pair], size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one size; returns quantity -> samples. Bandwidth and rate share one test."""
    tests = {
        LATENCY: ["latency"],
        STREAM: ["bandwidth", "rate"],
        BOTH_WAYS: ["bidirectional"],
    }
    rows = {}
    for test, quantities in tests.items():
        wanted = [quantity for quantity in quantities if quantity in options.only]
        if wanted:
            _progress(f"{' and '.join(wanted)} of {size} bytes")
            able = [pair for pair in pairs if test in pair.tests]
            samples = sample(able, Job(test, size, 1, options.window), options.seconds)
            rows.update(dict.fromkeys(wanted, samples))
    return rows


def _progress(line: str) -> None:
    print(f"perf: {line}", file=sys.stderr, flush=True)
