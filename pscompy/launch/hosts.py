"""The hosts of a job, which options or the allocation of a batch system name."""

from __future__ import annotations

import ipaddress
import itertools
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pscompy.errors import ConfigError

MOST = 1 << 20  # ranks, or slots of hosts, that a job may have

Slots = dict[str, int]
"""How many ranks each host takes, in the order in which hosts are filled."""


class Share(NamedTuple):
    """The ranks of one host: `ranks` ranks, beginning with number `first`."""

    host: str
    first: int
    ranks: int


def from_words(words: list[str]) -> Slots:
    """Return the hosts in a list of words such as "a" or "a:2". A host that is named again gets
    more slots."""
    slots: Counter[str] = Counter()
    for word in words:
        _add(slots, word, repr(word))
    return dict(slots)


def _add(slots: Counter[str], word: str, shown: str) -> None:
    """Add the host of a word to the slots; `shown` is the word as an error names it."""
    # PSP_RSH would take a name that begins with - for an option.
    match = re.fullmatch(r"(\[[^]\s]+\]|[^:\s-][^:\s]*)(?::(\d+))?", word)
    if not match or match[2] == "0":
        raise ConfigError(f"{shown} is not HOST or HOST:RANKS")
    slots[match[1].strip("[]")] += int(match[2] or 1)


def from_file(path: Path, name: str = "--hostfile") -> Slots:
    """Return the hosts in a file, which has a line "a", "a:2" or "a slots=2" for each host; #
    begins a comment, and max_slots=2 has no effect. `name` is the option or variable that names
    the file, for errors."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"{name} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} {path} is not a text: {error}") from error
    slots: Counter[str] = Counter()
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        counted = re.sub(r"\s+max[-_]slots\s*=\s*\d+", "", text)
        if word := re.sub(r"\s+slots\s*=\s*", ":", counted):
            _add(slots, word, f"{name} {path}, line {number}: {text!r}")
    if not slots:
        raise ConfigError(f"{name} {path} names no host")
    return dict(slots)


def of_allocation(environ: Mapping[str, str]) -> Slots:
    """Return the hosts of the Slurm or PBS job that this process is in; none outside of such a
    job."""
    if environ.get("PBS_NODEFILE"):
        return from_file(Path(environ["PBS_NODEFILE"]), "PBS_NODEFILE")
    names = _slurm_names(environ.get("SLURM_JOB_NODELIST", ""))
    counts = _slurm_counts(environ.get("SLURM_TASKS_PER_NODE", ""))
    # `shares` refuses more than MOST hosts.
    return {name: next(counts, 1) for name in itertools.islice(names, MOST + 1)}


def _slurm_counts(text: str) -> Iterator[int]:
    """Yield the numbers in a list of Slurm: "2(x3),1" is 2, 2, 2 and 1."""
    for match in re.finditer(r"(\d+)(?:\(x(\d+)\))?", text):
        for _ in range(int(match[2] or 1)):
            yield int(match[1])


def _slurm_names(text: str) -> Iterator[str]:
    """Yield the names in a list of Slurm: "n[01-03,7],x" is n01, n02, n03, n7 and x."""
    for word in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        yield from _expanded(word)


def _expanded(word: str) -> Iterator[str]:
    match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", word)
    if not match:
        yield word
        return
    for part in match[2].split(","):
        if not re.fullmatch(r"\d+(-\d+)?", part, re.ASCII):
            raise ConfigError(f"SLURM_JOB_NODELIST: {part!r} is neither NUMBER nor FIRST-LAST")
        low, _, high = part.partition("-")
        for number in range(int(low), int(high or low) + 1):
            for rest in _expanded(match[3]):
                yield f"{match[1]}{number:0{len(low)}}{rest}"


def shares(slots: Slots, size: int | None) -> list[Share]:
    """Divide `size` ranks (None: one for each slot) among the hosts. If there are more ranks than
    slots, the hosts are filled again in the same order. Raises `ConfigError` for more than MOST."""
    for count, what in ((size or 0, "ranks"), (sum(slots.values()), "slots of hosts")):
        if count > MOST:
            raise ConfigError(f"{count} {what} are too many: a job may have {MOST}")
    places = [host for host, count in slots.items() for _ in range(count)]
    counts = Counter(itertools.islice(itertools.cycle(places), size or len(places)))
    firsts = itertools.accumulate(counts.values(), initial=0)
    return [Share(*it) for it in zip(counts, firsts, counts.values(), strict=False)]


def is_here(host: str) -> bool:
    """Whether this is a name or a loopback address of the host that this process runs on."""
    own = socket.gethostname()
    if host in ("localhost", own, own.partition(".")[0]):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # the name of another host
        return False
