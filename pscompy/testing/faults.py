"""A wrapper around a transport that injects faults which the contract allows.

The wrapper replaces the transport under the same name, by a plug-in folder, so the session uses it
like the transport itself. The faults are set by variables of that transport, PSP_<NAME>_FAULT_*;
by default there are none.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pscompy.config.config import Setting, Var
from pscompy.config.parsers import count
from pscompy.discovery import registry
from pscompy.plugin import Carrier, Transport

PREFIX = "FAULT_"
KNOBS = (
    Var("FAULT_BUSY", "0", count, "Attempts of each operation that find no room."),
    Var("FAULT_DELAY", "0", count, "Passes that make no progress, before each pass that does."),
    Var("FAULT_SHUFFLE", "0", count, "Most further such passes; their number is random."),
    Var("FAULT_FAIL_AT", "0", count, "Number of the operation that breaks its endpoint."),
    Var("FAULT_PATH", "0", count, "The path of that operation, from 1 on; 0: any."),
    Var("FAULT_KILL_AT", "0", count, "Number of the operation that kills the process."),
    Var("FAULT_REFUSE", "0", count, "Registrations of memory that find no room."),
)
PLUGIN = """
from pscompy.plugin import hookimpl
from pscompy.testing.faults import wrapped

@hookimpl
def pscompy_transport():
    return wrapped({name!r}, {plugindir!r})
"""


def make_folder(folder: Path, name: str, plugindir: str) -> str:
    """Write a plug-in for the wrapped transport `name` into a folder. Returns the value of
    PSP_PLUGINDIR that puts the folder in front of those in `plugindir`."""
    (folder / f"{name}.py").write_text(PLUGIN.format(name=name, plugindir=plugindir))
    return ":".join(filter(None, [str(folder), plugindir]))


def wrapped(name: str, plugindir: str) -> Transport:
    """Return the transport `name` in a wrapper. The transport is looked for in `plugindir`, too."""
    _, found = registry.load({"PLUGINDIR": plugindir})
    (inner,) = (it.transport for it in found if it.name == name)
    assert inner is not None
    variables = (*inner.variables, *KNOBS)
    made = _Wrapped(name, inner.priority, variables, lambda: 0, inner.unavailable)
    made.inner = inner
    return made


class _Wrapped(Transport):
    """A transport whose operations inject faults, and otherwise call those of `inner`."""

    inner: Transport

    def carry(self, settings: Sequence[Setting]) -> Carrier:
        return self.carry_for(settings, -1)

    def carry_for(self, settings: Sequence[Setting], rank: int) -> Carrier:
        module: Any = importlib.import_module("pscompy.testing._faults")
        knobs = {setting.name: setting.number for setting in settings}
        own = [it for it in settings if not it.name.startswith(PREFIX)]
        carrier = self.inner.carry_for(own, rank)
        raw = module.ffi.new("faults_knobs_t *")
        for knob in KNOBS:
            setattr(raw, knob.name.removeprefix(PREFIX).lower(), knobs[knob.name])
        faults = module.lib.faults_create(carrier.ops, raw)
        if not faults:
            raise MemoryError
        handle = int(module.ffi.cast("uintptr_t", faults))

        def close() -> None:
            carrier.close()
            module.lib.faults_destroy(faults)

        ops = int(module.lib.faults_ops(faults))
        return Carrier(ops, [*carrier.settings, Setting("faults", "", handle)], close)
