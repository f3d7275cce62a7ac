"""Job: the processes that a launcher started together, and the session that reaches them.

A World and all communicators that are made from it share one Job. The record of the connection to
another rank is made at its first use; the address of that rank is asked from the launcher when this
process connects to it.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pscompy.api.c.guard import require_waiting
from pscompy.api.session import Session
from pscompy.config import logs
from pscompy.config.variables import COLLECTIVES
from pscompy.errors import ConfigError, ConnectError, Timeout
from pscompy.world.bootstrap.blame import blamed_rank
from pscompy.world.bootstrap.launcher import Bootstrap
from pscompy.world.context_numbers import ContextNumbers
from pscompy.world.departures import Departures

if TYPE_CHECKING:
    from pscompy.control.handshake.identity import Identity
    from pscompy.control.peer import Record

# seconds of waiting for ranks that have not opened a World, after which the wait is logged
_PATIENCE = 30.0

_generations = itertools.count()  # numbers Worlds: a process may open one after another


class Job:
    """The ranks that a bootstrap knows. Opens the session of this rank."""

    def __init__(self, bootstrap: Bootstrap, config: Mapping[str, object] | None) -> None:
        self.bootstrap = bootstrap
        self.rank = bootstrap.rank
        self.size = bootstrap.size
        self._generation = next(_generations)
        self._records: dict[int, Record] = {}
        self._made: dict[int, Record] = {}  # also records whose rank the core does not know yet
        self._modules: tuple[int, ...] | None = None  # modules of all ranks, once known
        self.watch: object = None  # a Watch, which lives as long as the job
        name, job = self._name_of(self.rank), f"{bootstrap.job_id}.{self._generation}"
        self.session = Session._of_job(name, config, self.rank, job, self._find_peer)
        self.contexts = ContextNumbers(self.session._core.open_context)
        if self.size > 1:  # without this object, which the session must not keep
            self.session._on_abandoned = partial(bootstrap.leave, self._generation, False)
        self._departures = Departures(self.session._control, self._generation)

    def publish(self) -> None:
        """Publish this rank's address at the launcher, and wait until all ranks have published
        theirs. From then on the launcher reports the ends of ranks."""
        if self.size == 1:
            return
        require_waiting()
        place = f"{self.module}:{self.session.listen().address}"
        self.bootstrap.put(self._key_of(self.rank), place)
        algorithms = self._algorithms()
        if algorithms:
            self.bootstrap.put(self._key_of(self.rank, ".coll"), algorithms)
        self._await_all()
        if algorithms:
            self._compare(algorithms)
        self._departures.follow(self.bootstrap)

    def leave(self, error: BaseException | None = None) -> None:
        """Tell the launcher that this rank leaves its World before the others: by `error`, before
        it ends its connections, so that the launcher knows which rank has failed first."""
        if self.size > 1:
            self.bootstrap.leave(self._generation, error is not None, blamed_rank(error))

    def _await_all(self) -> None:
        """Wait for all ranks without a time limit, and log once that the wait takes long."""
        seconds = self.session.config["DEADLOCK_WARNINGS"] or _PATIENCE
        try:
            self.bootstrap.barrier(seconds)
        except Timeout:
            logs.notice(
                "rank %d of %d has waited %g s for ranks that have not opened their World",
                *(self.rank, self.size, seconds),
            )
            self.bootstrap.barrier()

    def sibling(self, name: str, users: str) -> Job:
        """Return a job of the same ranks with a worker of its own, which has connections, receives
        and contexts of its own. All ranks know the worker by `name`; `users` names the endpoints
        that use it, for explanations."""
        made = copy.copy(self)
        made._records, made._made = {}, {}
        job = f"{self.session._identity.job}/{name}"
        made.session = self.session._open_beside(job, users, made._find_peer)
        made.contexts = ContextNumbers(made.session._core.open_context)
        return made

    # ---- ranks ----

    def record(self, rank: int) -> Record:
        """Return the record of the connection to a rank. The program uses the same record as the
        control plane, which accepts that rank's precons.

        Several threads, or a finalizer in the middle of this method, may make records of one rank
        at once. The first is kept, and the core never learns the rank of the others.
        """
        record = self._records.get(rank)
        if record is None:
            name = self._name_of(rank)
            # without this object, because the control thread keeps the record
            where = partial(_address_of, self.bootstrap, self._key_of(rank), rank, name)
            resolve = where if self.size > 1 else None
            made = self.session._new_record(rank=rank, name=name, resolve=resolve, spare=True)
            record = self._made.setdefault(rank, made)
            record.conn.set_rank(rank)
            self._records[rank] = record
        return record

    def _find_peer(self, identity: Identity) -> Record | None:
        """Return the record of the rank that has dialed this process. Called on the control
        thread."""
        return self.record(identity.rank) if 0 <= identity.rank < self.size else None

    def _name_of(self, rank: int) -> str:
        """Return the name of the session of a rank. Names sort as ranks do: the lower name
        connects."""
        width = len(str(self.size - 1))
        return f"{rank:0{width}}"

    def _key_of(self, rank: int, kind: str = "") -> str:
        return f"pscompy.{self._generation}.{rank}{kind}"

    def _algorithms(self) -> str:
        """Return this rank's variables of collectives that differ from the defaults, in words."""
        config = self.session.config
        chosen = {it.name: config[it.name] for it in COLLECTIVES}
        return ",".join(
            f"PSP_{name}={'1' if value is True else value}"
            for name, value in chosen.items()
            if value not in ("auto", False)
        )

    def _compare(self, algorithms: str) -> None:
        """Raise `ConfigError` unless these variables are the same on all ranks. Called on every
        rank that sets one, so of two ranks that differ, one at least sees it and ends the job."""
        for rank in range(self.size):
            try:
                there = self.bootstrap.get(self._key_of(rank, ".coll"), rank)
            except KeyError:
                there = ""
            if there != algorithms:
                raise ConfigError(
                    "the PSP_COLL_ variables must be the same on all ranks:"
                    f" rank {self.rank} has {algorithms}, rank {rank} has {there or 'none'}"
                )

    def key_of_service(self, context: int, rank: int) -> str:
        """Return the key by which a rank publishes that it accepts calls of actions in a context
        of this job."""
        worker = self.session._identity.job.partition("/")[2].replace(" ", "_")
        return f"pscompy.serves.{self._generation}.{worker[-20:]}.{context}.{rank}"

    # ---- modules ----

    @property
    def module(self) -> int:
        """The number of this process's module: PSP_MSA_MODULE_ID."""
        number: int = self.session.config["MSA_MODULE_ID"]
        return number

    @property
    def modules(self) -> tuple[int, ...]:
        """The module of every rank."""
        if self._modules is None:
            joined = getattr(self.bootstrap, "modules", None)
            self._modules = tuple(joined or map(self._module_of, range(self.size)))
        return self._modules

    def _module_of(self, rank: int) -> int:
        if rank == self.rank:
            return self.module
        place = _place_of(self.bootstrap, self._key_of(rank), rank, self._name_of(rank))
        return int(place.partition(":")[0])

    def modules_apart(self, members: Sequence[int]) -> list[int] | None:
        """Return the modules of these ranks if collective operations must take modules into
        account, else None; the same on all ranks.

        Without PSP_MSA_MODULE_ID this rank assumes that there is only one module and does not
        query the others.
        """
        if not self.module or not self.session.config["MSA_AWARENESS"]:
            return None
        modules = [self.modules[rank] for rank in members]
        return modules if len(set(modules)) > 1 and all(modules) else None


def _place_of(bootstrap: Bootstrap, key: str, rank: int, name: str) -> str:
    """Return the text that a rank has published: the number of its module, a colon, its address."""
    try:
        return bootstrap.get(key, rank)
    except KeyError:
        raise ConnectError(f"rank {rank} has published no address", peer=name) from None


def _address_of(bootstrap: Bootstrap, key: str, rank: int, name: str) -> str:
    return _place_of(bootstrap, key, rank, name).partition(":")[2]
