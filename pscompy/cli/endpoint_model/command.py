"""`pscompy endpoint-model`: the resources of an InfiniBand device that threads use."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator, Sequence

from pscompy.cli import plot
from pscompy.cli.arguments import ArgumentParser, picture, positive
from pscompy.cli.endpoint_model import CATEGORIES, CONTRADICTIONS, Category, Policy, Usage, usage
from pscompy.cli.endpoint_model.model import KIB, TABLE_I

_WIDTH = 100
_HEADS = (
    *("category", "CTX", "PD", "MR", "QP", "CQ", "UAR", "uUAR", "used"),
    *("%uUAR", "QPs:level", "memory"),
)
_EPILOG = """\
categories, from nothing shared to everything shared:
  MPI everywhere   a context (CTX) with a QP and a CQ for each thread
  2xDynamic        a CTX for each rank; twice as many QPs as threads, each in a
                   thread domain (TD) with its own UAR; every other QP is used
  Dynamic          a CTX for each rank; a QP in a TD with its own UAR for each
                   thread
  Shared Dynamic   as Dynamic, but two TDs share a UAR
  Static           a CTX for each rank; a QP without TD for each thread, on the
                   UARs that the CTX begins with
  MPI+threads      a CTX, a QP and a CQ for each rank

columns:
  CTX PD MR QP CQ  objects of Verbs; a thread has one MR
  UAR, uUAR, used  pages of the device, their halves, and halves that threads use
  %uUAR            uUARs in percent of those of MPI everywhere
  QPs:level        number of used QPs by what they share with other threads:
                   1 nothing, 2 the UAR, 3 the uUAR, 4 the QP itself
  memory           bytes of the CTXs, QPs and CQs

The numbers are computed for mlx5 devices, not read from one. The model is that
of Zambre, Chandramowlishwaran and Balaji, "Scalable Communication Endpoints for
MPI+Threads Applications". The paper's stencil is --qps-per-thread 2 with --ranks
16, 8, 4, 2 and 1.
"""


def main(arguments: list[str]) -> int:
    """Calculate how many resources of an InfiniBand device the threads of a program use, for each
    way of sharing them."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.plot:
        plot.check()
    try:
        policy = Policy(options.total_uuars, options.low_latency_uuars)
        shape = (options.threads, options.ranks, options.qps_per_thread, policy)
        rows = [usage(category, *shape) for category in options.category or CATEGORIES]
    except ValueError as error:
        parser.error(str(error))
    if options.plot:
        _draw(options, policy, parser)
    print(_as_json(rows) if options.json else _as_text(rows, policy, options.qps_per_thread))
    return 0


def _draw(options: argparse.Namespace, policy: Policy, parser: ArgumentParser) -> None:
    from pscompy.cli.endpoint_model.plot import draw

    try:
        draw(options.plot, options.threads, policy)
    except OSError as error:
        parser.error(str(error))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="pscompy endpoint-model",
        description=main.__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    numbers = (
        ("--threads", 16, "threads of the node, all ranks together"),
        ("--ranks", 1, "processes that the threads are divided among"),
        ("--qps-per-thread", 1, "QPs of a thread, one for each of its neighbours"),
        ("--total-uuars", 16, "uUARs that a CTX begins with, as MLX5_TOTAL_UUARS"),
    )
    for name, default, text in numbers:
        help_text = f"{text} [{default}]"
        parser.add_argument(name, type=positive, default=default, metavar="N", help=help_text)
    parser.add_argument(
        "--low-latency-uuars",
        type=_natural,
        default=4,
        metavar="N",
        help="how many of these take only one QP, as MLX5_NUM_LOW_LAT_UUARS: 0 to all but one [4]",
    )
    parser.add_argument(
        "--category",
        type=_categories,
        action="extend",
        metavar="NAME,...",
        help="show only these categories, such as static,shared-dynamic",
    )
    parser.add_argument(
        "--plot",
        type=picture,
        metavar="FILE",
        help="draw table I and figures 3, 12 and 14b of the paper for these threads and uUARs,"
        " as .png, .svg or .pdf",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    return parser


def _natural(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number such as 0 or 4")


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def _categories(text: str) -> list[Category]:
    """Parse names of categories, separated by commas; case and punctuation are ignored."""
    known = {_plain(category.name): category for category in CATEGORIES}
    words = text.split(",")
    for word in words:
        if _plain(word) not in known:
            names = ", ".join(category.name for category in CATEGORIES)
            raise argparse.ArgumentTypeError(f"{word!r} is not one of {names}")
    return [known[_plain(word)] for word in words]


def _as_json(rows: Sequence[Usage]) -> str:
    return json.dumps([row.as_dict() for row in rows], indent=2)


def _as_text(rows: Sequence[Usage], policy: Policy, qps: int) -> str:
    threads, ranks = _number(rows[0].threads, "thread"), _number(rows[0].ranks, "rank")
    uuars = f"{policy.total_uuars} uUARs of a CTX, {policy.low_latency_uuars} with low latency"
    lines = [f"{threads}, {ranks}, {_number(qps, 'QP')} per thread; {uuars}", "", *_table(rows)]
    lines += [f"{row.category} exceeds mlx5: {text}" for row in rows for text in row.exceeds]
    lines += ["", f"Table I of the paper, in bytes: {_table_i()}"]
    lines += ["", "Where the paper contradicts itself:"]
    for it in CONTRADICTIONS:
        text = f"{it.about}: the paper says {it.stated}; here {it.counted}. {it.reason}"
        lines += textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _table(rows: Sequence[Usage]) -> Iterator[str]:
    """Yield the lines of the table; each column is as wide as its longest cell."""
    cells = [_HEADS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for name, *others in cells:
        numbers = (text.rjust(width) for text, width in zip(others, widths[1:], strict=True))
        yield "  ".join([name.ljust(widths[0]), *numbers])


def _cells(row: Usage) -> tuple[str, ...]:
    counts = (row.ctx, row.pd, row.mr, row.qp, row.cq, row.uar, row.uuar, row.used_uuar)
    return (
        row.category,
        *map(str, counts),
        f"{row.percent_uuar:.6g}",
        " ".join(f"{count}:{level}" for level, count in row.levels.items()),
        f"{row.memory_bytes / KIB**2:.2f} MiB",
    )


def _table_i() -> str:
    """Return as text the sizes in table I of the paper, and their sum; sizes of at least 1 KiB are
    in K."""
    sizes = {**TABLE_I, "together": sum(TABLE_I.values())}
    return ", ".join(
        f"{name} {size // KIB}K" if size >= KIB else f"{name} {size}"
        for name, size in sizes.items()
    )
