"""One job out of several, each started by its own launcher: a module of the machine each.

The rank 0 of each module meets the others' at a *meeting*, which a plug-in provides (entry points
of the group "pscompy.meetings"): a place that all modules can reach, though not each other. Ranks
are dense: modules in the order of their numbers, inside a module the launcher's order.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pscompy.errors import ConfigError, ConnectError, NameInUse, PeerLost, PscomError, Timeout

if TYPE_CHECKING:
    from pscompy.world.bootstrap import Bootstrap
    from pscompy.world.bootstrap.join import Join, Meeting


class Joined:
    """See `Bootstrap`: several of them as one."""

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
        self.rank = self.modules.index(join.module) + local.rank
        self.size = len(self.modules)
        jobs = [(module, sizes[module][0]["job"]) for module in sorted(sizes)]
        self.job_id = hashlib.sha256(repr((join.name, jobs)).encode()).hexdigest()[:32]

    def put(self, key: str, value: str) -> None:
        self._new[key] = value

    def get(self, key: str, rank: int) -> str:
        return self._values[key]

    def barrier(self, timeout: float | None = None) -> None:
        for of_module in self._exchange({"values": self._new}, timeout).values():
            for of_rank in of_module:
                self._values.update(of_rank["values"])
        self._new = {}

    def finalize(self) -> None:
        if self._meeting is not None:
            self._meeting.close()
        self._local.finalize()

    def abort(self, code: int) -> None:
        """The other modules notice that this one has left."""
        self._local.abort(code)

    # ---- exchanging ----

    def _exchange(self, mine: object, timeout: float | None) -> dict[int, list[Any]]:
        """What each rank of each module gives, after a barrier of all. A Timeout leaves it as it
        is: the next call goes on with it."""
        if not self._stages:
            self._begin(next(self._numbers), mine)
        while self._stages:
            self._stages[0](timeout)
            del self._stages[0]
        return self._all

    def _begin(self, number: int, mine: object) -> None:
        """The stages of one exchange, in the order that they are done in."""
        key, local = f"pscompy.join.{number}", self._local

        def meet(timeout: float | None) -> None:
            if self._meeting is not None:
                local.put(f"{key}.all", _pack(self._meet(self._meeting, number, key, timeout)))

        def learn(_: float | None) -> None:
            self._all = _unpack_all(_unpack(local.get(f"{key}.all", 0)))

        local.put(f"{key}.{local.rank}", _pack(mine))
        self._stages = [local.barrier, meet, lambda _: local.barrier(), learn]

    def _meet(
        self, meeting: Meeting, number: int, key: str, timeout: float | None
    ) -> dict[str, Any]:
        """On the first rank: what all modules gave, or the error that all ranks get to know."""
        ours = [_unpack(self._local.get(f"{key}.{rank}", rank)) for rank in range(self._local.size)]
        try:
            texts = meeting.exchange(number, json.dumps(ours), timeout)
        except PscomError as error:
            if isinstance(error, Timeout) and number:
                raise
            return {"error": type(error).__name__, "text": str(error)}
        return {"modules": {str(module): text for module, text in texts.items()}}


def _check_modules(sizes: dict[int, list[Any]]) -> None:
    """ConfigError on all ranks: those of one launcher are a module, and say so."""
    for module, of_module in sizes.items():
        for rank, told in enumerate(of_module):
            if told["module"] != module:
                raise ConfigError(
                    f"rank {rank} of the launcher of module {module} says PSP_MSA_MODULE_ID="
                    f"{told['module']}: each module that is joined has a launcher of its own",
                    name="PSP_MSA_MODULE_ID",
                )


_ERRORS: dict[str, type[PscomError]] = {
    it.__name__: it for it in (ConfigError, ConnectError, NameInUse, PeerLost, Timeout)
}


def _unpack_all(told: dict[str, Any]) -> dict[int, list[Any]]:
    if "error" in told:
        raise _ERRORS.get(told["error"], ConnectError)(told["text"])
    return {int(module): json.loads(text) for module, text in told["modules"].items()}


def _pack(value: object) -> str:
    """As a launcher's store takes it: no white space, no backslash."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def _unpack(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text))
