"""PSP_JOIN: whether a job is a part of a larger job, and the meeting of the parts.

A job that is not joined loads only this module; see `joined_jobs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pscompy.config.config import Config
from pscompy.config.variables import VARIABLES
from pscompy.errors import ConfigError

if TYPE_CHECKING:
    from pscompy.config.config import Var


GROUP = "pscompy.meetings"


class Meeting(Protocol):
    """The place where rank 0 of every module (part of the machine) exchanges texts with the others.
    All errors of a meeting are `PscomError`s."""

    def exchange(self, number: int, text: str, timeout: float | None) -> Mapping[int, str]:
        """Send `text` to all modules; returns the texts of all modules by their numbers.

        `number` counts the exchanges, the same on all sides. `Timeout` if modules are missing after
        `timeout` seconds; the next call continues the exchange. Raises `NameInUse` if another
        module has the number of this one, `PeerLost` if a module has left.
        """

    def close(self) -> None: ...


class Join(NamedTuple):
    """The request of PSP_JOIN: the name of the larger job, its number of modules, and the number
    of this one."""

    name: str
    modules: int
    module: int
    timeout: float
    overrides: Mapping[str, object]

    @classmethod
    def wanted(cls, overrides: Mapping[str, object] | None, join: str | None = None) -> Join | None:
        """Read the request to join a larger job from PSP_JOIN, or from `join` instead if it is not
        None. Returns None if the text is empty: the job is then no part of a larger one. Raises
        `ConfigError` if the text is not NAME:MODULES."""
        given = dict(overrides or {})
        config = Config({"": VARIABLES}, given)
        text = config["JOIN"] if join is None else join
        if not text:
            return None
        name, _, modules = text.rpartition(":")
        if not name or not modules.isdecimal() or not int(modules):
            raise ConfigError(
                f"PSP_JOIN={text!r} must be NAME:MODULES", name="PSP_JOIN", value=text
            )
        return cls(
            name, int(modules), config["MSA_MODULE_ID"], float(config["JOIN_TIMEOUT"]), given
        )

    def configured(self, **sections: Sequence[Var]) -> Mapping[str, Any]:
        """This job's values of pscompy's variables, and of a plug-in's sections."""
        tables = {"": VARIABLES, **{name: tuple(them) for name, them in sections.items()}}
        return Config.load(tables, self.overrides, known=None)

    def meeting(self) -> Meeting:
        """Enter the meeting, which a plug-in provides. Raises `ConfigError` if no such plug-in is
        installed."""
        # imported late, because only joined jobs need it
        from importlib.metadata import entry_points

        for entry in entry_points(group=GROUP):
            made: Meeting = entry.load()(self)
            return made
        raise ConfigError(
            f"PSP_JOIN needs a plug-in of the group {GROUP}: none is installed", name="PSP_JOIN"
        )
