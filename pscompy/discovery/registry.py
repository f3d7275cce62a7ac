"""Finds the transports: PSP_PLUGINDIR, entry points of the group "pscompy",
built-in packages; validates what they declare; puts them in order.

A transport that cannot be loaded or declares nonsense is a `Found` with a
`problem`, not an exception: one broken plug-in must not keep the others from
working. A transport that PSP_<NAME>=0 excludes is not imported at all.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType

from pscompy.config.config import Config, Var, full_name, priority
from pscompy.config.variables import APART, KNOWN, VARIABLES
from pscompy.discovery import installed, shadows
from pscompy.errors import ConfigError, describe
from pscompy.plugin import Transport

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """A transport that was found, usable or not.

    `source` is the module or file that it comes from, `user_priority` is
    PSP_<NAME>. `transport` is None where the plug-in was not imported or
    declared none; `problem` then says why. A `dormant` one has no other
    problem than that nobody asked for it.
    """

    name: str
    source: str
    user_priority: int
    transport: Transport | None = None
    problem: str | None = None
    dormant: bool = False

    @property
    def order(self) -> tuple[bool, int, int]:
        """Transports are tried from the highest to the lowest."""
        built_in = self.transport.priority if self.transport else 0
        return self.problem is None, self.user_priority, built_in

    def unavailable(self) -> str | None:
        """Why it cannot be used in this process, or None. Loads its fabric."""
        if self.problem or self.transport is None:
            return self.problem
        try:
            return self.transport.unavailable()
        except Exception as error:  # a plug-in's fault stays the plug-in's
            return f"asked whether it is available it raised {describe(error)}"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Something that should declare a transport; `declare` imports it, or raises."""

    name: str
    source: str
    declare: Callable[[], Transport]
    own: bool = False  # it is a part of pscompy


def load(
    overrides: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> tuple[Config, list[Found]]:
    """The configuration with the tables of all transports, and the transports
    in the order in which they are tried, those with a problem last.

    Takes what `Config.load` takes. ConfigError: a bad value, an override that
    nobody declares, or a PSP_PLUGINDIR that is no folder.
    """
    basic = Config.load({"": VARIABLES}, overrides, environ, known=None)
    candidates = list(_candidates(basic))
    tables: dict[str, tuple[Var, ...]] = {
        candidate.name.upper(): (_own_variable(candidate.name),) for candidate in candidates
    }
    priorities = Config.load(tables, overrides, environ, known=None)
    found = _register(candidates, priorities)
    for it in found:
        if it.transport is not None:
            tables[it.name.upper()] += it.transport.variables
    read = {it.name for it in found if it.transport is not None}
    not_read = [candidate for candidate in candidates if candidate.name not in read]
    config = Config.load(
        {"": VARIABLES, **tables},
        overrides,
        environ,
        known=(*KNOWN, *_families(candidates, not_read)),
        withheld=partial(_withheld, not_read),
    )
    found = [_rouse(it, config) for it in found]
    return config, sorted(found, key=lambda it: it.order, reverse=True)


# ---- names of variables that are not read -------------------------------------


def _families(candidates: list[_Candidate], not_read: list[_Candidate]) -> Iterator[str]:
    """Where every name is right, because nobody looks at the declarations."""
    yield from (f"{it.name.upper()}_" for it in not_read if not it.own)
    there = {it.name.upper() for it in candidates}
    for section, families in APART.items():
        if section not in there:
            yield from families


def _withheld(not_read: list[_Candidate]) -> set[str]:
    """The declarations of pscompy's own transports that are excluded."""
    return {
        name
        for candidate in not_read
        if candidate.own
        for var in _variables(candidate)
        for name in (full_name(candidate.name.upper(), var.name), *var.aliases)
    }


def _variables(candidate: _Candidate) -> tuple[Var, ...]:
    try:
        return candidate.declare().variables
    except Exception as refusal:  # it was excluded, so this is nobody's business
        logger.debug("the variables of %s: %s", candidate.name, refusal)
        return ()


# ---- finding ----------------------------------------------------------------


def _candidates(basic: Config) -> Iterator[_Candidate]:
    """In the order of who wins where two have the same name."""
    yield from _in_folders(basic.expand(basic["PLUGINDIR"]))
    yield from _installed(basic["INSTALLED"])
    yield from _built_in()


def _built_in() -> Iterator[_Candidate]:
    """They are tested, as all that is ours: neither pluggy nor a check of what they declare is
    needed."""
    package = importlib.import_module("pscompy.plugins")
    with os.scandir(package.__path__[0]) as folders:
        packages = [it for it in folders if os.path.isfile(f"{it.path}/__init__.py")]  # noqa: PTH113
    for name in sorted(it.name for it in packages):
        if name != "bridge":  # it carries transports, and is none
            source = f"{package.__name__}.{name}"
            yield _Candidate(name, source, partial(_declare_own, source), own=True)


def preload() -> None:
    """Load all that the built-in transports need, in a process that others are forked from; each
    of these looks at all of them, also at those that are only for who asks for them."""
    for candidate in _built_in():
        candidate.declare().unavailable()


def _declare_own(module: str) -> Transport:
    declared: Transport = importlib.import_module(module).pscompy_transport()
    return declared


def _installed(table: str) -> Iterator[_Candidate]:
    for entry in _entries(table):
        own = entry.distribution == installed.PROJECT and not _hidden(entry)
        yield _Candidate(entry.name, entry.module, partial(_declare_entry, entry), own)


def _entries(table: str) -> list[installed.Entry]:
    if table:
        try:
            return installed.unpack(table)
        except installed.Unbelievable as reason:
            logger.debug("PSP_INSTALLED is not used: %s", reason)
    return installed.scan()


def _hidden(entry: installed.Entry) -> str | None:
    return shadows.stranger(entry.module, entry.distribution, entry.places)


def _declare_entry(entry: installed.Entry) -> Transport:
    hidden = _hidden(entry)
    if entry.distribution == installed.PROJECT and not hidden:
        return _declare_own(entry.module)
    from pscompy.discovery import pluggy_hooks

    def load() -> ModuleType:
        if hidden:
            raise pluggy_hooks.Refused(hidden)
        return importlib.import_module(entry.module)

    return pluggy_hooks.declaration(entry.name, entry.module, load)


def _in_folders(folders: str) -> Iterator[_Candidate]:
    """Modules and packages in PSP_PLUGINDIR whose names begin with a letter."""
    for folder in filter(None, folders.split(os.pathsep)):
        if not Path(folder).is_dir():
            raise ConfigError(
                f"PSP_PLUGINDIR: {folder!r} must be a folder",
                name="PSP_PLUGINDIR",
                value=folder,
                allowed="a folder",
            )
        for path in sorted(Path(folder).iterdir()):
            file = path / "__init__.py" if path.is_dir() else path
            if path.name[0].isalpha() and file.suffix == ".py" and file.is_file():
                yield _Candidate(path.stem, str(path), partial(_declare_file, path, file))


def _declare_file(path: Path, file: Path) -> Transport:
    from pscompy.discovery import pluggy_hooks

    return pluggy_hooks.declaration(path.stem, str(path), partial(_load_file, path.stem, file))


def _load_file(name: str, file: Path) -> ModuleType:
    """Import a file under a name that collides with nothing on sys.path."""
    from importlib.util import module_from_spec, spec_from_file_location

    qualified = f"pscompy_plugindir_{name}"
    spec = spec_from_file_location(qualified, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = module_from_spec(spec)
    sys.modules[qualified] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[qualified]
        raise
    return module


# ---- registering ------------------------------------------------------------


def _own_variable(name: str) -> Var:
    return Var("", "1", priority, f"Priority of {name}; the highest is tried first, 0 excludes it.")


def _register(candidates: list[_Candidate], priorities: Config) -> list[Found]:
    sources: dict[str, str] = {}
    found = []
    for candidate in candidates:
        winner = sources.setdefault(candidate.name, candidate.source)
        user_priority = priorities[candidate.name.upper()]
        place = Found(candidate.name, candidate.source, user_priority)
        if winner != candidate.source:
            found.append(replace(place, problem=f"the name is taken by {winner}"))
        else:
            found.append(_admit(candidate, place))
    return found


def _admit(candidate: _Candidate, place: Found) -> Found:
    """Import a candidate and let it declare its transport."""
    if place.user_priority == 0:
        return replace(place, problem=f"excluded by PSP_{place.name.upper()}=0")
    try:
        transport = candidate.declare()
    except Exception as refusal:  # one broken plug-in must not keep the others from working
        return replace(place, problem=str(refusal) or repr(refusal))
    if transport.priority == 0:
        return replace(place, transport=transport, problem="excluded by its own priority 0")
    return replace(place, transport=transport)


def _rouse(place: Found, config: Config) -> Found:
    """Leave a transport dormant that is for those who ask for it, and nobody does."""
    transport, section = place.transport, place.name.upper()
    if place.problem or transport is None or transport.asked is None:
        return place
    values = {var.name: config[full_name(section, var.name)] for var in transport.variables}
    if config.origin(section) != "default" or transport.asked(values):
        return place
    reason = f"available, not enabled (PSP_{section}=1 enables it)"
    return replace(place, problem=reason, dormant=True)
