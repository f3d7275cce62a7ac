"""The compiled half of a plug-in, and the reason why it cannot be used."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType


class Native:
    """The compiled half of a plug-in: the module `_native` in its package, which exports
    `uintptr_t <transport>_transport(void)`.

    The module is loaded at first use, so that declaring a transport costs nothing. If a fabric's
    library does not load, `unavailable` returns a reason, and no exception is raised.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._name = package.rpartition(".")[2]

    def ops(self) -> int:
        """Return the address of the transport's psc_transport_ops_t."""
        function = getattr(self.load().lib, f"{self._name}_transport")
        return int(function())

    def unavailable(self) -> str | None:
        """Return the reason why the module cannot be used, or None if it can be used."""
        try:
            self.load()
        except ModuleNotFoundError as error:
            if error.name != f"{self._package}._native":
                return f"built, but it needs the missing module {error.name}"
            return f"not built: {self._why_not_built()}"
        except ImportError as error:
            return f"built, but does not load: {error}"
        return None

    def load(self) -> ModuleType:
        """Return the compiled module. Raises `ImportError` for the reasons that `unavailable`
        returns."""
        return importlib.import_module(f"{self._package}._native")

    def _why_not_built(self) -> str:
        """Return the reason that the build recorded beside the package, or a general remedy."""
        package = importlib.import_module(self._package)
        import json  # imported here: only plug-ins that were not built need it

        record = Path(package.__path__[0]).parent / "not_built.json"
        try:
            reasons = json.loads(record.read_text())
        except FileNotFoundError:
            reasons = {}
        return str(reasons.get(self._name, "its extension is missing (pip install -e .)"))
