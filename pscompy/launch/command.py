"""The command line of `pscompy run`."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from pscompy.cli.arguments import ArgumentParser, duration, positive
from pscompy.launch.environment import batch_environment
from pscompy.launch.hosts import Slots, from_file, from_words, is_here, of_allocation, shares
from pscompy.launch.job import Job, Plan

_EPILOG = """\
what to run, after the options:
  app.py [argument ...]        a Python program
  -m module [argument ...]     a module, as python -m runs it
  -c code [argument ...]       Python code
  -- command [argument ...]    any other command

A Python program runs under the Python that runs pscompy. Whole lines of output are passed
on; rank 0 gets the standard input. When one rank fails, all are ended (unless with
--keep-going), and its exit code is returned, or 128 + n for signal n.
"""


# Options whose value is the next word.
_TAKE_VALUE = ("-n", "-np", "--np", "--hosts", "--hostfile", "--module", "--env", "--dump-after")


def _parser() -> ArgumentParser:
    """Return the parser of the options that stand before the program."""
    result = ArgumentParser(
        prog="pscompy run",
        usage="pscompy run [option ...] app.py [argument ...]",
        description=main.__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    result.add_argument(
        "-n",
        "-np",
        "--np",
        type=positive,
        dest="np",
        metavar="N",
        help="ranks [1; with hosts: one for each of their slots]",
    )
    where = result.add_mutually_exclusive_group()
    where.add_argument(
        "--hosts",
        metavar="HOST:N,...",
        help="hosts to run on, by PSP_RSH [those of a Slurm or PBS allocation, else this one]",
    )
    where.add_argument(
        "--hostfile", type=Path, metavar="FILE", help='a line "HOST:N" or "HOST slots=N" for each'
    )
    result.add_argument("--module", type=int, metavar="M", help="number of the ranks' module")
    result.add_argument("--label", action="store_true", help="begin each line with its rank")
    result.add_argument(
        "--keep-going",
        action="store_true",
        help="let the other ranks go on when one has failed, whose code is that of the job",
    )
    result.add_argument(
        "--dump-after",
        type=duration,
        default=math.inf,
        metavar="SECONDS",
        help="have all ranks write what they have in flight, every SECONDS",
    )
    result.add_argument(
        "--mpi",
        action="store_true",
        help="have programs of MPI, such as those of mpi4py, use the MPI of pscompy",
    )
    result.add_argument(
        "--env",
        type=_assignment,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set an environment variable for all ranks; may be repeated",
    )
    return result


def main(arguments: list[str]) -> int:
    """Run a program on several ranks, of this machine or of several hosts."""
    parser = _parser()
    own, program = _split(arguments)
    options = parser.parse_args(own)
    command = _command(program, parser)
    environ = dict(options.env)
    if options.module is not None:
        environ["PSP_MSA_MODULE_ID"] = str(options.module)
    if options.dump_after < math.inf:
        environ["PSP_SIGQUIT"] = "1"
    slots = _slots(options)
    places = shares(slots, options.np)
    size = options.np or sum(slots.values()) or 1
    plan = Plan(
        *(command, size, options.label, environ, options.dump_after),
        keep_going=options.keep_going,
        mpi=options.mpi,
    )
    if all(is_here(host) for host in slots):
        return Job(plan).run()
    from pscompy.launch.hosts_job import HostsJob

    return HostsJob(plan._replace(shares=places)).run()


def _slots(options: argparse.Namespace) -> Slots:
    """Return the hosts that the options name, else those of an allocation; an empty result means
    this host."""
    if options.hosts:
        return from_words(options.hosts.split(","))
    if options.hostfile:
        return from_file(options.hostfile)
    return of_allocation(batch_environment())


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split into the options of `pscompy run`, and the program with its own arguments.

    argparse is not used for this, because the program's arguments may look like those options.
    """
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word in ("--", "-m", "-c") or not word.startswith("-"):
            break
        index += 2 if word in _TAKE_VALUE else 1
    return arguments[:index], arguments[index:]


def _command(program: list[str], parser: ArgumentParser) -> list[str]:
    """Return the whole command that each rank runs."""
    if not program or program == ["--"]:
        parser.error("no program is given for the ranks to run (pscompy run --help)")
    first = program[0]
    if first == "--":
        return program[1:]
    if first in ("-m", "-c"):
        if len(program) < 2:
            parser.error(f"{first} needs an argument")
    elif not Path(first).exists():
        parser.error(f"no such file: {first} (any other command: -- {first})")
    elif _is_binary(first):
        parser.error(f"{first} is no Python program (any other command: -- {first})")
    return [sys.executable, *program]


def _is_binary(path: str) -> bool:
    """Whether the file is an ELF binary. Python can run scripts, folders and archives."""
    try:
        with Path(path).open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:  # a folder, or a file that cannot be read, which Python reports itself
        return False


def _assignment(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if name and separator:
        return name, value
    raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
