"""Registers the plug-ins, validates what they declare, and puts their transports in order.

All plug-ins, pscompy's own too, are registered with one manager of pluggy. A plug-in that does not
load or whose declaration is invalid is a `Found` with a `problem`, not an exception: one broken
plug-in must not keep the others from working. A plug-in that PSP_<NAME>=0 excludes is not imported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import pluggy

from pscompy.config.config import Config, Var, full_name
from pscompy.config.parsers import priority
from pscompy.config.variables import APART, KNOWN, OTHER_NAMES, VARIABLES, WITHOUT_EFFECT
from pscompy.discovery.hooks import Refused, new_manager, register
from pscompy.discovery.sources import Source, find
from pscompy.discovery.validation import flaw_of_name
from pscompy.errors import describe
from pscompy.transport.declaration import Transport

logger = logging.getLogger("pscompy.discovery.registry")


class Found(NamedTuple):
    """A transport that was found, usable or not.

    `source` is the module or file that it comes from, `user_priority` is PSP_<NAME>. `transport` is
    None if the plug-in was not imported or declared none; `problem` then says why. A `dormant`
    transport has no other problem than that no variable asks for it.
    """

    name: str
    source: str
    user_priority: int
    transport: Transport | None = None
    problem: str | None = None
    dormant: bool = False

    @property
    def order(self) -> tuple[bool, int, int]:
        """The sort key of transports: they are tried from the highest to the lowest."""
        built_in = self.transport.priority if self.transport else 0
        return self.problem is None, self.user_priority, built_in

    def unavailable(self) -> str | None:
        """Return why the transport cannot be used in this process, or None. Loads its fabric's
        library."""
        if self.problem or self.transport is None:
            return self.problem
        try:
            return self.transport.unavailable()
        except (Exception, SystemExit) as error:  # a broken plug-in must not break the others
            return f"asked whether it is available it raised {describe(error)}"


class Transports(list[Found]):
    """The transports in the order in which they are tried, those with a problem last. `plugins` is
    the manager that their plug-ins are registered with, by the transports' names."""

    def __init__(self, found: Iterable[Found], plugins: pluggy.PluginManager) -> None:
        super().__init__(sorted(found, key=lambda it: it.order, reverse=True))
        self.plugins = plugins


def load(
    overrides: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> tuple[Config, Transports]:
    """Return the configuration with the variables of all transports, and the transports.

    Takes what `Config` takes. Raises `ConfigError` for a bad value, for an override that nobody
    declares, and if PSP_PLUGINDIR is no folder.
    """
    config = Config({"": VARIABLES}, overrides, environ)
    sources = list(find(config.expand(config["PLUGINDIR"])))
    registrar = _Registrar(config)
    for source in sources:
        registrar.admit(source)
    names = {it.name for it in registrar.found if it.transport is not None}
    not_read = [source for source in sources if source.name not in names]
    known = (*KNOWN, *_families(sources, not_read))
    config.check(known, partial(_withheld, not_read), WITHOUT_EFFECT)
    return config, Transports((_if_asked(it, config) for it in registrar.found), registrar.plugins)


def transport_names() -> list[str]:
    """Return the names of all transports, whether they can be used or not."""
    return [found.name for found in load()[1]]


# ---- registering ------------------------------------------------------------


class _Registrar:
    """Registers plug-ins one after the other, and has `config` declare their variables."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.plugins = new_manager()
        self.found: list[Found] = []

    def admit(self, source: Source) -> None:
        """Import a plug-in and register it, unless the user has excluded it or its name is taken;
        adds its `Found`."""
        self.found.append(self._admitted(source))

    def _admitted(self, source: Source) -> Found:
        section = source.name.upper()
        if problem := flaw_of_name(source.name):
            return Found(source.name, source.place, 0, problem=problem)
        if section not in self.config:
            self.config.declare(section, (_priority_variable(source.name),))
        place = Found(source.name, source.place, self.config[section])
        if place.user_priority == 0:
            self.plugins.set_blocked(source.name)
            named = self.config.origin(section).partition(" ")[2] or f"PSP_{section}"
            return place._replace(problem=f"excluded by {named}=0")
        if self.plugins.has_plugin(source.name):
            winner = next(it for it in self.found if it.name == source.name and it.transport)
            return place._replace(problem=f"the name is taken by {winner.source}")
        return self._registered(source, place)

    def _registered(self, source: Source, place: Found) -> Found:
        try:
            transport = self._register(source)
        except Refused as refusal:
            why = str(refusal)
            named = why.startswith(source.place)
            return place._replace(problem=why if named else f"{source.place}: {why}")
        # SystemExit: the module may be a program that exits
        except (Exception, SystemExit) as error:
            return place._replace(problem=f"{source.place} raised {describe(error)}")
        problem = None if transport.priority else "excluded by its own priority 0"
        return place._replace(transport=transport, problem=problem)

    def _register(self, source: Source) -> Transport:
        """Import and register a plug-in, and declare its variables. Raises `Refused`, or what the
        plug-in raises; the plug-in is not registered then."""
        try:
            transport = register(self.plugins, source.name, source.load())
            self._declare(source.name.upper(), transport.variables)
        except BaseException:
            if self.plugins.has_plugin(source.name):
                self.plugins.unregister(name=source.name)
            raise
        return transport

    def _declare(self, section: str, variables: tuple[Var, ...]) -> None:
        for var in variables:
            if full_name(section, var.name) in self.config:
                raise Refused(f"its variable {var.name!r} is the name of another one")
        self.config.declare(section, variables)


def _priority_variable(name: str) -> Var:
    doc = f"Priority of {name}; the highest is tried first, 0 excludes it."
    return Var("", "1", priority, doc, aliases=OTHER_NAMES.get(name.upper(), ()))


def _if_asked(place: Found, config: Config) -> Found:
    """Mark a transport as dormant if it is used on request only, and no variable requests it."""
    transport, section = place.transport, place.name.upper()
    if place.problem or transport is None or transport.asked is None:
        return place
    values = {var.name: config[full_name(section, var.name)] for var in transport.variables}
    try:
        if config.origin(section) != "default" or transport.asked(values):
            return place
    except (Exception, SystemExit) as error:  # a broken plug-in must not break the others
        return place._replace(problem=f"asked whether it is enabled it raised {describe(error)}")
    reason = f"available, not enabled (PSP_{section}=1 enables it)"
    return place._replace(problem=reason, dormant=True)


# ---- names of variables whose declarations are not read ---------------------


def _families(sources: Sequence[Source], not_read: Sequence[Source]) -> Iterator[str]:
    """Yield the prefixes of variables that count as declared: those of third-party plug-ins that
    are not imported, and of pscompy's own that are not installed."""
    yield from (f"{source.name.upper()}_" for source in not_read if not source.own())
    there = {source.name.upper() for source in sources}
    for section, families in APART.items():
        if section not in there:
            yield from families


def _withheld(not_read: Sequence[Source]) -> set[str]:
    """Return the names of the variables of those of pscompy's own plug-ins that give no transport,
    for example because PSP_<NAME>=0 excludes them; such variables are not reported as unknown."""
    return {
        name
        for source in not_read
        if source.own()
        for var in _variables(source)
        for name in (full_name(source.name.upper(), var.name), *var.aliases)
    }


def _variables(source: Source) -> tuple[Var, ...]:
    try:
        declared: Transport = source.load().pscompy_transport()
    except Exception as error:  # ignored, because this transport is not used
        logger.debug("the variables of %s: %s", source.name, describe(error))
        return ()
    return declared.variables
