"""Plug-ins of others: asked through pluggy, and not believed before they are checked.

Only a process that has found one loads this module, and pluggy with it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pluggy

from pscompy.discovery.validation import flaw
from pscompy.errors import describe
from pscompy.plugin import PROJECT, Transport

hookspec = pluggy.HookspecMarker(PROJECT)


class Hooks:
    """The hooks that a plug-in implements."""

    @hookspec
    def pscompy_transport(self) -> Transport:
        """Declare the transport. Opens nothing and loads no fabric library."""
        raise AssertionError("a specification, never called")


class Refused(Exception):
    """Why a plug-in gives no transport."""


def declaration(name: str, source: str, load: Callable[[], ModuleType]) -> Transport:
    """What the module that `load` imports declares. Refused: nothing that can be used."""
    try:
        declared = _ask(load(), name)
    except Refused:
        raise
    except pluggy.PluginValidationError as error:
        raise Refused(f"{source}: {' '.join(str(error).split())}") from error
    except Exception as error:  # whatever a plug-in does wrong ends here
        raise Refused(f"{source} raised {describe(error)}") from error
    if problem := flaw(declared, name):
        raise Refused(f"{source}: {problem}")
    assert isinstance(declared, Transport)
    return declared


def _ask(module: ModuleType, name: str) -> object:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    manager.register(module, name)
    manager.check_pending()
    answers = manager.hook.pscompy_transport()
    if not answers:
        raise Refused(
            f"{module.__name__} declares no transport: it needs a function"
            " pscompy_transport marked with @hookimpl that returns a Transport"
        )
    return answers[0]
