"""The transports of a worker: each is opened once, with an interface for every rail (one of several
networks) that works."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pscompy.config.config import Config, Setting, TransportWarning, warn
from pscompy.control.handshake.limits import LANES_MAX
from pscompy.control.lane import REASON_MAX, text
from pscompy.control.selection import (
    CAP_MODULES,
    CAP_NODE,
    CAP_SELF,
    DECLARED,
    MEASURED,
    RAILS,
    Estimates,
    Option,
)
from pscompy.core import ffi, lib
from pscompy.errors import ConfigError, PscomError, from_status
from pscompy.transport.declaration import Carrier, Relay

logger = logging.getLogger(__name__)


class Transport(Protocol):
    """A transport that the registry found; see `pscompy.discovery.registry.Found`."""

    @property
    def name(self) -> str: ...
    @property
    def user_priority(self) -> int: ...
    @property
    def dormant(self) -> bool: ...
    @property
    def transport(self) -> Any: ...
    def unavailable(self) -> str | None: ...


class Transports:
    """The transports of a worker. `options` says for each what it can do, or why it cannot be used;
    `relays` are those of the open transports, by name."""

    def __init__(self, worker: Any) -> None:
        self.options: list[Option] = []
        self.joined: tuple[str, ...] = ()  # transports whose rails go together: PSP_RAILS
        self.relays: dict[str, Relay] = {}
        self._worker = worker
        self._carriers: dict[str, Carrier] = {}

    def open(
        self,
        transports: Iterable[Transport],
        config: Config,
        known: Sequence[Option] = (),
        rank: int = -1,
    ) -> None:
        """Open every transport that can be opened, for this rank of a World. A failure becomes the
        reason in its option. Of several transports with one name the first is opened. An option
        that equals one of the `known` options is replaced by it, so that workers share the
        object."""
        first: dict[str, Transport] = {}
        for found in transports:
            first.setdefault(found.name, found)
        self.joined = config["RAILS"]
        _check_known(self.joined, first)
        opened = (self._open(found, config, rank) for found in first.values())
        self.options = [next((it for it in known if it == made), made) for made in opened]
        _check_able(self.joined, self.options)
        for found, option in zip(first.values(), self.options, strict=True):
            if option.reason and found.user_priority and not found.dormant:
                _warn_of_missing(found, option.reason, config.asked(found.name.upper()))

    def close(self) -> None:
        """Close all transports, after the worker was destroyed."""
        for carrier in self._carriers.values():
            carrier.close()

    def stuck(self, option: Option) -> str:
        """Return the call in which the transport blocks, if it reports one, or ""."""
        stuck = self._carriers[option.name].stuck
        return stuck() if stuck is not None else ""

    def log_stuck(self) -> bool:
        """Have every transport that is blocked in a call log that. Returns False if no transport
        can detect it."""
        reports = [it.stuck() for it in self._carriers.values() if it.stuck is not None]
        return bool(reports)

    def _open(self, found: Transport, config: Config, rank: int) -> Option:
        declared = found.transport
        priority = 0 if declared is None else declared.priority
        option = Option(found.name, found.user_priority, priority)
        reason = found.unavailable()
        if reason is not None:
            return option._replace(reason=reason)
        try:
            settings = config.settings(found.name.upper())
            carrier = declared.carry_within(settings, config["CANDIDATE_TIMEOUT"], rank)
        except Exception as error:  # a defect of a plug-in is a reason not to use it
            return option._replace(reason=f"{error}" or type(error).__name__)
        self._carriers[found.name] = carrier
        try:
            first = open_path(self._worker, carrier, 0)
        except PscomError as error:
            logger.info("%s cannot be used: %s", found.name, error)
            return option._replace(reason=str(error))
        if carrier.relay is not None:
            self.relays[found.name] = carrier.relay
        rails = self._open_more_paths(carrier, first)
        across = config["MSA_SHM"]
        return option._replace(rails=rails, estimates=self._estimates(first), across=across)

    def _open_more_paths(self, carrier: Carrier, first: int) -> dict[int, int]:
        """Open the transport's other paths too; returns the interface of each rail."""
        rails = {self._attr(first).rail: first}
        for path in range(1, min(self._attr(first).paths, LANES_MAX)):
            try:
                iface = open_path(self._worker, carrier, path)
            except PscomError as error:
                logger.error("path %d cannot be used: %s", path, error)
            else:
                rails[self._attr(iface).rail] = iface
        return rails

    def _attr(self, iface: int) -> Any:
        attr = ffi.new("psc_iface_attr_t *")
        lib.psc_worker_query(self._worker, iface, attr)
        return attr

    def _estimates(self, iface: int) -> Estimates:
        attr = self._attr(iface)
        source = MEASURED if attr.measured else DECLARED
        return Estimates(
            caps=attr.caps,
            max_bcopy=attr.max_bcopy,
            max_zcopy=attr.max_zcopy,
            min_zcopy=attr.min_zcopy,
            max_put=attr.max_put,
            max_get=attr.max_get,
            latency_ns=attr.latency_ns,
            overhead_ns=attr.overhead_ns,
            bandwidth=max(attr.bandwidth, 1.0),
            copy_bandwidth=max(attr.copy_bandwidth, 1.0),
            reg_ns=attr.reg_ns,
            pipeline=attr.pipeline,
            source=source,
            copy_source=source,
        )


def open_path(worker: Any, carrier: Carrier, path: int) -> int:
    """Open one path of a transport. Returns the index of its interface. Raises `PscomError` with
    the reason if that fails."""
    settings = _settings(carrier.settings)
    buffer = ffi.new("char[]", REASON_MAX)
    iface = lib.psc_worker_open(worker, carrier.ops, path, settings.array, settings.size, buffer)
    if iface < 0:
        raise PscomError(text(buffer) or str(from_status(iface, "open")))
    return int(iface)


class _Settings(NamedTuple):
    """An array of psc_setting_t, with the strings that it points to."""

    array: Any
    size: int
    strings: list[Any]


def _settings(settings: Sequence[Setting]) -> _Settings:
    array = ffi.new("psc_setting_t[]", len(settings))
    strings = []
    for slot, setting in zip(array, settings, strict=True):
        name, value = (ffi.new("char[]", word.encode()) for word in (setting.name, setting.text))
        slot.name, slot.text, slot.number = name, value, setting.number
        strings += [name, value]
    return _Settings(array, len(settings), strings)


def _warn_of_missing(found: Transport, reason: str, asked: Sequence[str]) -> None:
    """Warn if the user asked for this transport, or if it should run everywhere."""
    if asked:
        warn(f"{found.name} is asked for by {', '.join(asked)}, and cannot be used: {reason}")
    elif found.transport is not None and found.transport.everywhere:
        without = f"PSP_{found.name.upper()}=0 does without it"
        warn(f"{found.name} cannot be used: {reason} ({without})", TransportWarning)


# capabilities of transports that connect to some peers only
_SOME_PEERS = {
    CAP_SELF: "a session with itself",
    CAP_NODE: "processes of one node",
    CAP_MODULES: "modules",
}


def _check_known(joined: tuple[str, ...], known: Mapping[str, Transport]) -> None:
    """Raise `ConfigError` if PSP_RAILS names a transport that does not exist."""
    for name in joined:
        if name not in known:
            raise _unfit(joined, f"there is no transport {name}, only {', '.join(sorted(known))}")


def _check_able(joined: tuple[str, ...], options: Iterable[Option]) -> None:
    """Raise `ConfigError` if the first transport of PSP_RAILS cannot carry connections, or one of
    them cannot be joined."""
    by_name = {option.name: option for option in options}
    for name in joined[:1]:
        if reason := by_name[name].reason:
            raise _unfit(joined, f"{name}, the first one, cannot be used: {reason}")
    for name in joined:
        estimates = by_name[name].estimates
        for cap, peers in _SOME_PEERS.items():
            if estimates is not None and estimates.caps & cap:
                raise _unfit(joined, f"{name} connects {peers} only, so no rails join it")


def _unfit(joined: tuple[str, ...], why: str) -> ConfigError:
    value = "+".join(joined)
    return ConfigError(f"{RAILS}={value}: {why}", name=RAILS, value=value)
