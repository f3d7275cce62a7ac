"""Finds the capabilities of a transport on this machine: opens it once, in a separate worker."""

from __future__ import annotations

import os
from typing import Any

from pscompy.cli.sizes import with_unit
from pscompy.config.config import Config
from pscompy.discovery.registry import Found
from pscompy.errors import PscomError
from pscompy.transport.declaration import Carrier

_SIZES = ("max_short", "max_bcopy", "max_zcopy", "min_zcopy", "max_put", "max_get")
_COUNTS = ("max_iov", "max_eps", "paths")
_ESTIMATES = ("latency_ns", "overhead_ns", "bandwidth", "copy_bandwidth", "reg_ns", "poll_ns")
_NO_LIMIT = 1 << 62
_LOG_INFO = 3  # log level "info", which includes warnings and errors


class Probe:
    """A context in which transports are opened to query their capabilities."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._worker: Any = None
        self._unusable: str | None = None
        # opened transports, closed after the worker was destroyed
        self._carriers: list[Carrier] = []

    def __enter__(self) -> Probe:
        try:
            from pscompy.core import ffi, lib
        except ImportError as error:
            self._unusable = f"the core does not load: {error}"
            return self
        self._ffi, self._lib = ffi, lib
        self._worker = lib.psc_worker_create(ffi.new("psc_worker_config_t *", {"rts_max": 1}))
        if self._worker == ffi.NULL:
            self._unusable = "no worker could be made: out of memory or descriptors"
        else:
            self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            lib.psc_worker_log_to(self._worker, self._pipe[1], _LOG_INFO)
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker:
            self._lib.psc_worker_destroy(self._worker)
            for end in self._pipe:
                os.close(end)
        for carrier in self._carriers:
            carrier.close()

    def open(self, found: Found) -> tuple[str | None, dict[str, Any] | None]:
        """Return the reason why the transport does not open, or its capabilities."""
        if self._unusable:
            return self._unusable, None
        assert found.transport is not None
        from pscompy.control.transports import open_path  # loads the core

        try:
            settings = self._config.settings(found.name.upper())
            carrier = found.transport.carry_within(settings, self._config["CANDIDATE_TIMEOUT"])
        except Exception as error:  # any exception of a plug-in counts as a reason
            return f"{error}" or type(error).__name__, None
        self._carriers.append(carrier)
        try:
            iface = open_path(self._worker, carrier, 0)
        except PscomError as error:
            return str(error), None
        attr = self._ffi.new("psc_iface_attr_t *")
        self._lib.psc_worker_query(self._worker, iface, attr)
        return None, {"said": self._logged(), **_as_document(attr)}

    def _logged(self) -> list[str]:
        """Return the lines that transports have logged since the last call, without their
        levels."""
        try:
            text = os.read(self._pipe[0], 1 << 16).decode(errors="replace")
        except BlockingIOError:
            return []
        return [line.partition(" ")[2] for line in text.splitlines()]


def capability_words(caps: int) -> list[str]:
    """Return the names of the bits that are set in `caps`, a psc_iface_attr_t.caps
    (transport.h)."""
    from pscompy.core import lib

    names = [name for name in dir(lib) if name.startswith("PSC_CAP_")]
    bits = sorted((getattr(lib, name), name.removeprefix("PSC_CAP_").lower()) for name in names)
    return [word for bit, word in bits if caps & bit]


def _as_document(attr: Any) -> dict[str, Any]:
    words = capability_words(attr.caps)
    values = {name: getattr(attr, name) for name in (*_SIZES, *_COUNTS, *_ESTIMATES)}
    return {"caps": words, **values}


def describe(capabilities: dict[str, Any]) -> list[str]:
    """Return the capabilities as lines of text."""
    sizes = {name: capabilities[name] for name in _SIZES if capabilities[name]}
    estimates = (
        f"latency {capabilities['latency_ns'] / 1e3:.2f} us",
        f"overhead {capabilities['overhead_ns'] / 1e3:.2f} us",
        f"bandwidth {capabilities['bandwidth'] / 1e9:.2f} GB/s",
    )
    return [
        "can " + ", ".join(capabilities["caps"]),
        ", ".join(f"{name} {_size(value)}" for name, value in sizes.items()),
        "estimates: " + ", ".join(estimates),
        *capabilities["said"],
    ]


def _size(value: int) -> str:
    return "inf" if value >= _NO_LIMIT else with_unit(value)
