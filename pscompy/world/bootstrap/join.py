"""Whether a job is to be a part of a larger one, and where the parts meet.

This is all that a job by itself loads of it; see `joined`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pscompy.config.config import Config
from pscompy.config.variables import VARIABLES
from pscompy.errors import ConfigError

if TYPE_CHECKING:
    from pscompy.config.config import Var
    from pscompy.world.bootstrap import Bootstrap


GROUP = "pscompy.meetings"


class Meeting(Protocol):
    """Where the first ranks of the modules meet. What it raises is a `PscomError`."""

    def exchange(self, number: int, text: str, timeout: float | None) -> Mapping[int, str]:
        """Give `text` to all modules, and get theirs, by their numbers; `number` counts the
        exchanges, the same on all sides. Timeout (seconds): not all came; calling again goes on.
        NameInUse: there is another module of this number. PeerLost: one has left."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Join:
    """What PSP_JOIN asks for: `modules` of them under this name, and which one this is."""

    name: str
    modules: int
    module: int
    timeout: float
    overrides: Mapping[str, object]

    @classmethod
    def wanted(cls, overrides: Mapping[str, object] | None, join: str | None = None) -> Join | None:
        """None: this job is alone. ConfigError: PSP_JOIN is not NAME:MODULES."""
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
        """The variables of pscompy, and those of a plug-in's sections, as this job has them."""
        tables = {"": VARIABLES, **{name: tuple(them) for name, them in sections.items()}}
        return Config.load(tables, self.overrides, known=None)

    def meeting(self) -> Meeting:
        """ConfigError: nobody who could provide one is installed."""
        from importlib.metadata import entry_points  # not before: only the joined need it

        for entry in entry_points(group=GROUP):
            made: Meeting = entry.load()(self)
            return made
        raise ConfigError(
            f"PSP_JOIN needs a plug-in of the group {GROUP}: none is installed", name="PSP_JOIN"
        )


def join_up(
    bootstrap: Bootstrap, config: Mapping[str, object] | None, join: str | None = None
) -> Bootstrap:
    """This job's part in a larger one, where PSP_JOIN (or `join`) asks for it; or just this job.

    Raises what `Join.wanted` and `Joined` raise.
    """
    wanted = Join.wanted(config, join)
    if wanted is None:
        return bootstrap
    from pscompy.world.bootstrap.joined_jobs import Joined

    return Joined(bootstrap, wanted)
