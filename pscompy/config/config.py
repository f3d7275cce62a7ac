"""The PSP_ variables: declares and parses them, and reports misspelt names.

A variable is declared once, as a `Var` in a table; tables belong to sections.
The core's section is "", a transport's is its name in capitals, and the full
name of a variable is PSP_<SECTION>_<NAME>. A `Config` collects the tables and
reads each variable once, from the overrides of a program or the environment.
Apart from this module, pscompy reads the environment only where it starts
processes; `launcher_environment` returns the launcher's variables.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pscompy.config.parsers import Parser, as_number
from pscompy.errors import ConfigError, shown

PREFIX = "PSP_"

_NONE: Mapping[str, str] = {}


class ConfigWarning(UserWarning):
    """A PSP_ variable is unknown, probably misspelt; or its value is allowed but unwise, or names a
    thing that does not exist."""


class TransportWarning(UserWarning):
    """A transport that should run everywhere cannot be used here, so slower ones are used."""


class Var(NamedTuple):
    """One variable. `parent` and `aliases` are full names without PSP_.

    A variable that is not set has the value of its parent if that one is set, else its default.
    The name "" stands for the section itself: with it the transport shm declares PSP_SHM. The value
    of a variable with `selects` is a device, an address or the like; the user is warned if it
    cannot be used.
    """

    name: str
    default: str
    parser: Parser
    doc: str
    parent: str | None = None
    aliases: tuple[str, ...] = ()
    secret: bool = False
    selects: bool = False


class Setting(NamedTuple):
    """The value of a variable in the form for a transport in C; see psc_setting_t."""

    name: str
    text: str
    number: int


class Row(NamedTuple):
    """A variable as `pscompy info` shows it; secrets are hidden."""

    section: str
    name: str
    default: str
    value: str
    origin: str
    doc: str

    @property
    def changed(self) -> bool:
        return self.origin != "default"


class _Entry(NamedTuple):
    """A variable that was read: its text, the origin of the text (see `Config.origin`), and its
    value."""

    text: str
    origin: str
    value: Any


def full_name(section: str, name: str) -> str:
    """Return the full name of a variable, without PSP_: ("SHM", "DIRECT") -> "SHM_DIRECT"."""
    return f"{section}_{name}" if section and name else section or name


def launcher_environment() -> Mapping[str, str]:
    """Return the variables that launchers and batch systems set; and PSCOMPY_*, which pscompy sets
    (`set_for_children`)."""
    families = ("PMI_", "PMIX_", "SLURM_", "PBS_", "OMPI_COMM_WORLD_", "PALS_", "FLUX_")
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OPAL_PREFIX")
    return {
        name: value
        for name, value in os.environ.items()
        if name in names or name.startswith((*families, "TORCHELASTIC_", "PSCOMPY_"))
    }


def set_for_children(name: str, value: str) -> None:
    """Set a variable PSCOMPY_*, which child processes find in their `launcher_environment`."""
    os.environ[name] = value


class Config(Mapping[str, Any]):
    """All variables with their values: `config["SPIN_US"]`.

    Keys are full names without PSP_. Each variable is read and validated once: at the first access
    to its value, or by `check`. After `check` no value changes any more.
    """

    def __init__(
        self,
        tables: Mapping[str, Iterable[Var]],
        overrides: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Declare the variables of `tables` (section -> variables).

        `overrides` (keys with or without PSP_) take precedence over `environ` (default: the
        process's environment), and a variable's own setting over its parent's. An empty text counts
        as not set.
        """
        self._environ = dict(os.environ if environ is None else environ)
        self._sources = {
            "config": _normalise(overrides or {}),
            "environment": {
                name.removeprefix(PREFIX): value
                for name, value in self._environ.items()
                if name.startswith(PREFIX)
            },
        }
        self._declared: dict[str, tuple[str, Var]] = {}
        self._entries: dict[str, _Entry] = {}
        self._settings: dict[str, tuple[Setting, ...]] = {}  # results of `settings`, by section
        for section, variables in tables.items():
            self.declare(section, variables)

    @classmethod
    def load(
        cls,
        tables: Mapping[str, Iterable[Var]],
        overrides: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        known: Collection[str] | None = (),
        withheld: Callable[[], Collection[str]] = frozenset,
        without_effect: Mapping[str, str] = _NONE,
    ) -> Config:
        """Return a checked configuration of `tables`. Takes the arguments of `Config` and `check`,
        and raises the errors of `check`."""
        config = cls(tables, overrides, environ)
        config.check(known, withheld, without_effect)
        return config

    def declare(self, section: str, variables: Iterable[Var]) -> None:
        """Add a section's variables, whose names must not be declared yet."""
        for var in variables:
            self._declared[full_name(section, var.name)] = (section, var)

    def check(
        self,
        known: Collection[str] | None = (),
        withheld: Callable[[], Collection[str]] = frozenset,
        without_effect: Mapping[str, str] = _NONE,
    ) -> None:
        """Look for undeclared names, and read and validate all variables.

        `known` are names that need no declaration; "DAPL_" stands for all that begin with it. None
        accepts every name. `withheld()` returns further known names, and is called only if a name
        is in none of these sets. Raises `ConfigError` for a bad value and for an undeclared
        override; warns (`ConfigWarning`) of undeclared PSP_ variables, and once per process of
        variables in `without_effect`: names like `known`, each with what there is instead.
        """
        if known is not None:
            self._check_names((*known, *without_effect), withheld)
            self._mention(without_effect)
        for name in self._declared:
            self._entry(name)

    def __getitem__(self, name: str) -> Any:
        return self._entry(name).value

    def __contains__(self, name: object) -> bool:
        return name in self._declared

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def __repr__(self) -> str:
        changed = ", ".join(f"{row.name}={row.value}" for row in self.rows() if row.changed)
        return f"<Config {changed or 'all defaults'}>"

    def origin(self, name: str) -> str:
        """Return the origin of the value: "default", "config", "environment", or one of these with
        the alias or parent that was set: "config PSP_RENDEZVOUS"."""
        return self._entry(name).origin

    def rows(self) -> list[Row]:
        """Return all variables in order of declaration, for people to read."""
        return [self._row(name, section, var) for name, (section, var) in self._declared.items()]

    def _row(self, name: str, section: str, var: Var) -> Row:
        entry = self._entry(name)
        shown = "(hidden)" if var.secret and entry.text else entry.text
        return Row(section, PREFIX + name, var.default, shown, entry.origin, var.doc)

    def settings(self, section: str) -> tuple[Setting, ...]:
        """Return the section's variables as the `Setting`s that its transport gets."""
        if section not in self._settings:
            self._settings[section] = tuple(
                Setting(var.name, entry.text, as_number(entry.value))
                for var, entry in self._section(section)
                if var.name
            )
        return self._settings[section]

    def asked(self, section: str) -> list[str]:
        """Return the variables that were set and so request this section's transport: PSP_<SECTION>
        and those with `selects`, with values and origins: ["PSP_IB_HCA=nix0 (environment)"]."""
        return [
            f"{PREFIX}{full_name(section, var.name)}={entry.text} ({entry.origin})"
            for var, entry in self._section(section)
            if (var.selects or not var.name) and entry.origin != "default"
        ]

    def _section(self, wanted: str) -> list[tuple[Var, _Entry]]:
        declared = self._declared.items()
        return [(var, self._entry(name)) for name, (section, var) in declared if section == wanted]

    def expand(self, template: str) -> str:
        """Return `template` with $NAME and ${NAME} (empty if not set), $$ (the process id) and a
        leading ~ replaced as by a shell."""

        def replace(match: re.Match[str]) -> str:
            name = match["braced"] or match["plain"]
            return self._environ.get(name, "") if name else str(os.getpid())

        if "$" in template:
            pattern = r"\$(?:\$|\{(?P<braced>\w+)\}|(?P<plain>[A-Za-z_]\w*))"
            template = re.sub(pattern, replace, template)
        return os.path.expanduser(template)  # noqa: PTH111 (any text)

    # ---- reading the values of variables ----

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            self._entries[name] = self._read(name, self._declared[name][1])
        return self._entries[name]

    def _read(self, name: str, var: Var) -> _Entry:
        given, origin = self._lookup(name) or (var.default, "default")
        try:
            return _Entry(given, origin, var.parser(given))
        except ValueError:
            raise _bad_value(name, var, given, origin) from None

    def _lookup(self, name: str) -> tuple[str, str] | None:
        """Return the text that is set for a name, and its origin; None if the name is not set."""
        _, var = self._declared.get(name, ("", None))
        for source, given in self._sources.items():
            for spelling in (name, *(var.aliases if var else ())):
                if value := given.get(spelling):
                    return value, source if spelling == name else f"{source} {PREFIX}{spelling}"
        if var is None or var.parent is None:
            return None
        inherited = self._lookup(var.parent)
        if inherited is None or " " in inherited[1]:
            return inherited
        return inherited[0], f"{inherited[1]} {PREFIX}{var.parent}"

    # ---- undeclared names ----

    def _check_names(self, known: Collection[str], withheld: Callable[[], Collection[str]]) -> None:
        names = self._declared_names()
        unknown = self._unknown(names, known)
        if any(unknown.values()):
            names |= {*withheld()}
            unknown = self._unknown(names, known)
        for name in unknown["config"]:
            raise ConfigError(f"no such variable: {_suggest(name, names)}", name=PREFIX + name)
        if unknown["environment"]:
            listed = "; ".join(_suggest(name, names) for name in sorted(unknown["environment"]))
            warn(f"unknown variable: {listed}")

    def _mention(self, without_effect: Mapping[str, str]) -> None:
        declared = self._declared_names()
        idle = {
            PREFIX + name: without_effect[entry]
            for given in self._sources.values()
            for name in given
            if name not in declared and (entry := _entry_for(name, without_effect)) is not None
        }
        if new := sorted(idle.keys() - _mentioned):
            _mentioned.update(new)
            instead: dict[str, list[str]] = {}
            for name in new:
                instead.setdefault(idle[name], []).append(name)
            listed = "; ".join(f"{', '.join(names)} ({why})" for why, names in instead.items())
            warn(f"known, but without effect in pscompy: {listed}")

    def _declared_names(self) -> set[str]:
        """Return all declared names and their aliases."""
        aliases = {alias for _, var in self._declared.values() for alias in var.aliases}
        return {*self._declared, *aliases}

    def _unknown(self, names: Collection[str], known: Collection[str]) -> dict[str, list[str]]:
        return {
            source: [name for name in given if name not in names and not _covered(name, known)]
            for source, given in self._sources.items()
        }


_mentioned: set[str] = set()  # variables without effect that this process has warned of already


def _normalise(overrides: Mapping[str, object]) -> dict[str, str]:
    """Return the overrides as the environment has them: texts, by names without PSP_. A value of
    None is left out."""
    if not isinstance(overrides, Mapping):
        raise TypeError(
            f"config is a dict of variables, such as {{'SHM': 0}}, not {type(overrides).__name__}"
        )
    return dict(_normal(*it) for it in overrides.items() if it[1] is not None)


def _normal(name: str, value: object) -> tuple[str, str]:
    if not isinstance(name, str):
        raise TypeError(f"a variable's name is a str, not {type(name).__name__}")
    bare = name.removeprefix(PREFIX)
    try:
        return bare, str(int(value)) if isinstance(value, bool) else str(value)
    except Exception as error:
        text = f"{PREFIX}{bare}: {shown(value)} cannot be written as a text: {error}"
        raise ConfigError(text, name=PREFIX + bare) from error


def _covered(name: str, known: Collection[str]) -> bool:
    return _entry_for(name, known) is not None


def _entry_for(name: str, known: Collection[str]) -> str | None:
    """Return the entry of `known` that a name falls under, or None. "DAPL_" is the entry of all
    names that begin with it, and of DAPL."""
    if name in known:
        return name
    families = (word for word in known if word.endswith("_"))
    return next((word for word in families if f"{name}_".startswith(word)), None)


def _suggest(name: str, names: Collection[str]) -> str:
    import difflib

    whole, upper = PREFIX + name, name.upper()
    # With the prefix difflib also finds a short name in which two letters are swapped.
    there = [PREFIX + each for each in names]
    close = difflib.get_close_matches(PREFIX + upper, there, n=1, cutoff=0.8)
    if not close or not difflib.get_close_matches(upper, [close[0].removeprefix(PREFIX)]):
        return whole
    return f"{whole} (did you mean {close[0]}?)"


def warn(message: str, kind: type[Warning] = ConfigWarning) -> None:
    """Issue a warning for the line of the program that called pscompy."""
    warnings.warn(message, kind, stacklevel=_own_frames())


def _own_frames() -> int:
    """Return the `stacklevel` of the first caller outside pscompy, for `warn`."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("pscompy"):
        frame, level = frame.f_back, level + 1
    return level


def _bad_value(name: str, var: Var, given: str, origin: str) -> ConfigError:
    source, _, via = origin.partition(" ")
    shown = "its value" if var.secret else repr(given)
    through = f", from {via}" if via else ""
    return ConfigError(
        f"{PREFIX}{name}: {shown} ({source}{through}) must be {var.parser.allowed}",
        name=PREFIX + name,
        value=None if var.secret else given,
        allowed=var.parser.allowed,
    )
