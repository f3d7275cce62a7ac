"""The hosts of a job, which options or the allocation of a batch system name."""

from __future__ import annotations

import ipaddress
import itertools
import re
import socket
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pscompy.errors import ConfigError

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
        # PSP_RSH would take a name that begins with - for an option.
        match = re.fullmatch(r"(\[[^]\s]+\]|[^:\s-][^:\s]*)(?::(\d+))?", word)
        if not match or match[2] == "0":
            raise ConfigError(f"{word!r} is not HOST or HOST:RANKS")
        slots[match[1].strip("[]")] += int(match[2] or 1)
    return dict(slots)


def from_file(path: Path, name: str = "--hostfile") -> Slots:
    """Return the hosts in a file, which has a line "a", "a:2" or "a slots=2" for each host; #
    begins a comment. `name` is the option or variable that names the file, for errors."""
    try:
        lines = [line.partition("#")[0] for line in path.read_text().splitlines()]
    except OSError as error:
        raise ConfigError(f"{name} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} {path} is not a text: {error}") from error
    words = [re.sub(r"\s+slots\s*=\s*", ":", line.strip()) for line in lines]
    slots = from_words([word for word in words if word])
    if not slots:
        raise ConfigError(f"{name} {path} names no host")
    return slots


def of_allocation(environ: Mapping[str, str]) -> Slots:
    """Return the hosts of the Slurm or PBS job that this process is in; none outside of such a
    job."""
    if "PBS_NODEFILE" in environ:
        return from_file(Path(environ["PBS_NODEFILE"]), "PBS_NODEFILE")
    names = _slurm_names(environ.get("SLURM_JOB_NODELIST", ""))
    tasks = environ.get("SLURM_TASKS_PER_NODE") or f"1(x{len(names)})"
    counts = [
        int(match[1])
        for match in re.finditer(r"(\d+)(?:\(x(\d+)\))?", tasks)
        for _ in range(int(match[2] or 1))
    ]
    return {name: counts[index] if index < len(counts) else 1 for index, name in enumerate(names)}


def _slurm_names(text: str) -> list[str]:
    """Return the names in a list of Slurm: "n[01-03,7],x" is n01, n02, n03, n7 and x."""
    words = re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text)
    return [name for word in words for name in _expanded(word)]


def _expanded(word: str) -> list[str]:
    match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", word)
    if not match:
        return [word]
    names = []
    for part in match[2].split(","):
        if not re.fullmatch(r"\d+(-\d+)?", part, re.ASCII):
            raise ConfigError(f"SLURM_JOB_NODELIST: {part!r} is neither NUMBER nor FIRST-LAST")
        low, _, high = part.partition("-")
        numbers = range(int(low), int(high or low) + 1)
        names += [f"{match[1]}{number:0{len(low)}}" for number in numbers]
    return [name + rest for name in names for rest in _expanded(match[3])]


def shares(slots: Slots, size: int | None) -> list[Share]:
    """Divide `size` ranks (None: one for each slot) among the hosts. If there are more ranks than
    slots, the hosts are filled again in the same order."""
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
