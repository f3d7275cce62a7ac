"""One job made of several, each of which is a module of the machine with its own launcher.

The ranks 0 of all modules exchange texts at a *meeting*, a place that all modules can reach even
if they cannot reach each other. A plug-in provides it (entry points of the group
"pscompy.meetings"). Ranks are dense: modules in the order of their numbers, and the launcher's
order inside a module.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pscompy.errors import (
    AuthError,
    ConfigError,
    ConnectError,
    NameInUse,
    PeerLost,
    PscomError,
    Timeout,
)
from pscompy.world.bootstrap.pmi1_server import JOINED

if TYPE_CHECKING:
    from pscompy.world.bootstrap.ends import End
    from pscompy.world.bootstrap.join import Join, Meeting
    from pscompy.world.bootstrap.launcher import Bootstrap, Follower


class Joined:
    """Implements `Bootstrap` for the joined job, by the bootstraps of its modules."""

    live = False

    def __init__(self, local: Bootstrap, join: Join) -> None:
        self._local = local
        self._join = join
        self._meeting = join.meeting() if local.rank == 0 else None
        self._numbers = itertools.count()
        self._values: dict[str, str] = {}
        self._new: dict[str, str] = {}
        self._stages: list[Callable[[float | None], None]] = []
        self._all: dict[int, list[Any]] = {}
        mine = {"job": local.job_id, "module": join.module}
        sizes = self._exchange(mine, join.timeout)
        _check_modules(sizes)
        self.modules = [module for module in sorted(sizes) for _ in sizes[module]]
        self._first = self.modules.index(join.module)
        self._followers: list[_Translating] = []
        self.rank = self._first + local.rank
        self.size = len(self.modules)
        if local.live and local.rank == 0:  # for the labels of `pscompy run`
            local.put(JOINED, f"{self.rank}:{self.size}")
        jobs = [(module, sizes[module][0]["job"]) for module in sorted(sizes)]
        self.job_id = hashlib.sha256(repr((join.name, jobs)).encode()).hexdigest()[:32]

    def put(self, key: str, value: str) -> None:
        self._new[key] = value

    def get(self, key: str, rank: int) -> str:
        return self._values[key]

    def barrier(self, timeout: float | None = None) -> None:
        try:
            of_modules = self._exchange({"values": self._new}, timeout)
        except PeerLost as error:
            raise self._renumbered(error) from None
        for of_module in of_modules.values():
            for of_rank in of_module:
                self._values.update(of_rank["values"])
        self._new = {}

    def follow(self, follower: Follower, world: int) -> int:
        """Report the ends of this module's ranks; the launchers of others report to theirs."""
        self._followers.append(_Translating(follower, self._first))
        return self._local.follow(self._followers[-1], world)

    def read_reports(self) -> bool:
        return self._local.read_reports()

    def leave(self, world: int, failed: bool, blames: int | None = None) -> None:
        self._local.leave(world, failed, self._local_rank(blames))

    def finalize(self, blames: int | None = None) -> None:
        if self._meeting is not None:
            self._meeting.close()
        self._local.finalize(self._local_rank(blames))

    def _local_rank(self, rank: int | None) -> int | None:
        """Return the number that the launcher of this module has given to a rank; None if the rank
        is of another module."""
        here = rank is not None and 0 <= rank - self._first < self._local.size
        return rank - self._first if rank is not None and here else None

    def _renumbered(self, error: PeerLost) -> PeerLost:
        """Return the error with the number in the joined job if its peer is a rank of this
        module."""
        match = re.fullmatch(r"rank (\d+)", error.peer or "")
        if match is None:
            return error
        peer = f"rank {self._first + int(match[1])}"
        return PeerLost(str(error).replace(f"{match[0]} has left", f"{peer} has left"), peer=peer)

    def abort(self, code: int) -> None:
        """End this module; the others notice that it has left."""
        self._local.abort(code)

    # ---- exchanging ----

    def _exchange(self, mine: object, timeout: float | None) -> dict[int, list[Any]]:
        """Exchange values between all ranks; returns them by module. `mine` is the value of this
        rank. After a `Timeout` the next call continues the exchange."""
        if not self._stages:
            self._begin(next(self._numbers), mine)
        while self._stages:
            self._stages[0](timeout)
            del self._stages[0]
        return self._all

    def _begin(self, number: int, mine: object) -> None:
        """Set up the stages of one exchange."""
        key, local = f"pscompy.join.{number}", self._local

        def exchange(timeout: float | None) -> None:
            if self._meeting is not None:
                local.put(f"{key}.all", _pack(self._texts(self._meeting, number, key, timeout)))

        def fetch(_: float | None) -> None:
            self._all = _unpack_all(_unpack(local.get(f"{key}.all", 0)))

        def follow(timeout: float | None) -> None:
            # rank 0 tells all ranks when the first exchange fails, later ones time out on each
            local.barrier(timeout if number else None)

        local.put(f"{key}.{local.rank}", _pack(mine))
        self._stages = [local.barrier, exchange, follow, fetch]

    def _texts(
        self, meeting: Meeting, number: int, key: str, timeout: float | None
    ) -> dict[str, Any]:
        """Return the texts of all modules, or the error for all ranks to raise. Called on rank
        0."""
        ours = [_unpack(self._local.get(f"{key}.{rank}", rank)) for rank in range(self._local.size)]
        try:
            texts = meeting.exchange(number, json.dumps(ours), timeout)
        except PscomError as error:
            if isinstance(error, Timeout) and number:
                raise
            return {"error": type(error).__name__, "text": str(error)}
        return {"modules": {str(module): text for module, text in texts.items()}}


class _Translating:
    """Passes the ends of a module's ranks on with their numbers in the joined job."""

    def __init__(self, follower: Follower, first: int) -> None:
        self._follower = weakref.ref(follower)
        self._first = first

    def note(self, end: End) -> None:
        follower = self._follower()
        if follower is not None:
            follower.note(end._replace(rank=end.rank + self._first))


def _check_modules(sizes: dict[int, list[Any]]) -> None:
    """Raise ConfigError on all ranks unless the ranks of one launcher name the same module."""
    for module, of_module in sizes.items():
        for rank, given in enumerate(of_module):
            if given["module"] != module:
                raise ConfigError(
                    f"rank {rank} of the launcher of module {module} says PSP_MSA_MODULE_ID="
                    f"{given['module']}: each module that is joined has a launcher of its own",
                    name="PSP_MSA_MODULE_ID",
                )


_ERRORS: dict[str, type[PscomError]] = {
    it.__name__: it for it in (AuthError, ConfigError, ConnectError, NameInUse, PeerLost, Timeout)
}


def _unpack_all(packed: dict[str, Any]) -> dict[int, list[Any]]:
    if "error" in packed:
        raise _ERRORS.get(packed["error"], ConnectError)(packed["text"])
    return {int(module): json.loads(text) for module, text in packed["modules"].items()}


def _pack(value: object) -> str:
    """Return the value as a text without white space and backslashes, for a launcher's store."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def _unpack(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text))
