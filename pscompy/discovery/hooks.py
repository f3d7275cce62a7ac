"""The hook that a plug-in implements, and the manager that plug-ins are registered with."""

from __future__ import annotations

import pluggy

from pscompy.discovery.validation import flaw
from pscompy.errors import PscomError
from pscompy.transport.declaration import PROJECT, Transport

hookspec = pluggy.HookspecMarker(PROJECT)


class Hooks:
    """The specification of the pluggy hooks that a plug-in implements."""

    @hookspec
    def pscompy_transport(self) -> Transport:
        """Declare the transport. Opens nothing and loads no fabric library."""
        raise AssertionError("a specification, never called")


class Refused(PscomError):
    """Raised with the reason why a plug-in declares no transport that can be used."""


def new_manager() -> pluggy.PluginManager:
    """Return a manager of pluggy that knows the hooks, without plug-ins."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    return manager


def register(manager: pluggy.PluginManager, name: str, plugin: object) -> Transport:
    """Register a plug-in, and return what it declares.

    Only the hook of this plug-in is called, so that an exception of a hook is this plug-in's.
    Raises `Refused` if the declaration is invalid.
    """
    if known := manager.get_name(plugin):
        raise Refused(f"it is registered as {known!r} already")
    try:
        manager.register(plugin, name)
    except pluggy.PluginValidationError as error:
        raise Refused(" ".join(str(error).split())) from error
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:  # it implements a hook of another name
        raise Refused(f"{' '.join(str(error).split())} (the hook is pscompy_transport)") from error
    declared = _call(manager, plugin)
    if problem := flaw(declared, name):
        raise Refused(problem)
    assert isinstance(declared, Transport)
    return declared


def _call(manager: pluggy.PluginManager, plugin: object) -> object:
    for implementation in manager.hook.pscompy_transport.get_hookimpls():
        if implementation.plugin is plugin:
            return implementation.function()
    raise Refused(
        f"{getattr(plugin, '__file__', plugin)} declares no transport: it needs a function"
        " pscompy_transport marked with @hookimpl that returns a Transport"
    )
