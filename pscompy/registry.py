"""Finds the transports: PSP_PLUGINDIR, entry points of the group "pscompy",
built-in packages; validates what they declare; puts them in order.

A transport that cannot be loaded or declares nonsense is a `Found` with a
`problem`, not an exception: one broken plug-in must not keep the others from
working. A transport that PSP_<NAME>=0 excludes is not imported at all.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pluggy

from pscompy import shadows
from pscompy.config import Config, Var, priority
from pscompy.declarations import flaw
from pscompy.errors import ConfigError
from pscompy.plugin import PROJECT, Hooks, Transport
from pscompy.values import Value
from pscompy.variables import KNOWN, VARIABLES

GROUP = "pscompy"


class Found(Value):
    """A transport that was found, usable or not.

    `source` is the module or file that it comes from, `user_priority` is
    PSP_<NAME>. `transport` is None where the plug-in was not imported or
    declared none; `problem` then says why.
    """

    name: str
    source: str
    user_priority: int
    transport: Transport | None = None
    problem: str | None = None

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
            return f"asked whether it is available it raised {_describe(error)}"


class _Candidate(Value):
    """Something that should declare a transport; importing it is `load`."""

    name: str
    source: str
    load: Callable[[], ModuleType]


class _Refused(Exception):
    """Why a candidate gives no transport."""


def load(
    overrides: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> tuple[Config, list[Found]]:
    """The configuration with the tables of all transports, and the transports
    in the order in which they are tried, those with a problem last.

    Takes what `Config.load` takes. ConfigError: a bad value, an override that
    nobody declares, or a PSP_PLUGINDIR that is no folder.
    """
    basic = Config.load({"": VARIABLES}, overrides, environ, known=None)
    candidates = list(_candidates(basic.expand(basic["PLUGINDIR"])))
    tables: dict[str, tuple[Var, ...]] = {
        candidate.name.upper(): (_own_variable(candidate.name),) for candidate in candidates
    }
    priorities = Config.load(tables, overrides, environ, known=None)
    found = _register(candidates, priorities)
    for it in found:
        if it.transport is not None:
            tables[it.name.upper()] += it.transport.variables
    not_read = [it.name.upper() for it in found if it.transport is None]
    config = Config.load({"": VARIABLES, **tables}, overrides, environ, known=(*KNOWN, *not_read))
    return config, sorted(found, key=lambda it: it.order, reverse=True)


# ---- finding ----------------------------------------------------------------


def _candidates(folders: str) -> Iterator[_Candidate]:
    """In the order of who wins where two have the same name. The transports
    of pscompy itself come twice once it is installed, as one source."""
    yield from _in_folders(folders)
    yield from _installed()
    yield from _built_in()


def _built_in() -> Iterator[_Candidate]:
    package = importlib.import_module("pscompy.plugins")
    for info in pkgutil.iter_modules(package.__path__):
        if info.name == "bridge":  # it carries transports, and is none
            continue
        module = f"{package.__name__}.{info.name}"
        yield _Candidate(info.name, module, partial(importlib.import_module, module))


def _installed() -> Iterator[_Candidate]:
    for entry in metadata.entry_points(group=GROUP):
        yield _Candidate(entry.name, entry.module, partial(_load_entry, entry))


def _load_entry(entry: metadata.EntryPoint) -> ModuleType:
    if hidden := shadows.stranger(entry.module, entry.dist):
        raise _Refused(hidden)
    return importlib.import_module(entry.module)


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
                yield _Candidate(path.stem, str(path), partial(_load_file, path.stem, file))


def _load_file(name: str, file: Path) -> ModuleType:
    """Import a file under a name that collides with nothing on sys.path."""
    qualified = f"pscompy_plugindir_{name}"
    spec = importlib.util.spec_from_file_location(qualified, file)
    if spec is None or spec.loader is None:
        raise _Refused(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
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
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    sources: dict[str, str] = {}
    found = []
    for candidate in candidates:
        winner = sources.setdefault(candidate.name, candidate.source)
        user_priority = priorities[candidate.name.upper()]
        place = Found(candidate.name, candidate.source, user_priority)
        if winner != candidate.source:
            found.append(place.but(problem=f"the name is taken by {winner}"))
        elif not any(it.source == candidate.source for it in found):
            found.append(_admit(manager, candidate, place))
    return found


def _admit(manager: pluggy.PluginManager, candidate: _Candidate, place: Found) -> Found:
    """Import a candidate and let it declare its transport."""
    if place.user_priority == 0:
        return place.but(problem=f"excluded by PSP_{place.name.upper()}=0")
    try:
        transport = _declaration(manager, candidate)
    except _Refused as refusal:
        return place.but(problem=str(refusal))
    if transport.priority == 0:
        return place.but(transport=transport, problem="excluded by its own priority 0")
    return place.but(transport=transport)


def _declaration(manager: pluggy.PluginManager, candidate: _Candidate) -> Transport:
    try:
        module = candidate.load()
        manager.register(module, candidate.name)
        manager.check_pending()
        declared = _ask(manager, module)
    except _Refused:
        raise
    except pluggy.PluginValidationError as error:
        manager.unregister(name=candidate.name)
        raise _Refused(f"{candidate.source}: {' '.join(str(error).split())}") from error
    except Exception as error:  # whatever a plug-in does wrong ends here
        raise _Refused(f"{candidate.source} raised {_describe(error)}") from error
    if problem := flaw(declared, candidate.name):
        raise _Refused(f"{candidate.source}: {problem}")
    assert isinstance(declared, Transport)
    return declared


def _ask(manager: pluggy.PluginManager, module: ModuleType) -> object:
    """What this one plug-in's hook returns."""
    others = [plugin for plugin in manager.get_plugins() if plugin is not module]
    answers = manager.subset_hook_caller("pscompy_transport", others)()
    if not answers:
        raise _Refused(
            f"{module.__name__} declares no transport: it needs a function"
            " pscompy_transport marked with @hookimpl that returns a Transport"
        )
    return answers[0]


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
