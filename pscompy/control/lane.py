"""A lane: one endpoint of one transport, from its creation until a connection owns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pscompy.control.handshake.limits import ADDRESS_MAX
from pscompy.control.selection import Option, Rail
from pscompy.core import ffi, lib
from pscompy.errors import PscomError, from_status

ROLE_CONNECTOR, ROLE_ACCEPTOR, ROLE_SELF = 0, 1, 2  # psc_role_t
REASON_MAX = 256  # maximum length of a reason that the core gives, in bytes


class Lane:
    """One endpoint of one transport.

    `lanes` holds all lanes of the worker that no connection owns, by id; a lane that is destroyed
    removes itself from it.
    """

    def __init__(self, lanes: dict[int, Lane], rail: Rail, lane_id: int, handle: Any) -> None:
        self.rail = rail
        self.id = lane_id
        self.handle = handle  # address of the core's lane (psc_lane_t *)
        self.on_change: Callable[[], object] = _ignore  # called when the lane's state has changed
        self._lanes = lanes
        lanes[lane_id] = self

    @property
    def option(self) -> Option:
        return self.rail.option

    def address(self) -> bytes:
        """Return the bytes that the peer needs to connect.

        Raises `PscomError` if the transport has no address for this endpoint.
        """
        buffer = ffi.new("uint8_t[]", ADDRESS_MAX)
        length = ffi.new("size_t *", ADDRESS_MAX)
        status = lib.psc_lane_address(self.handle, buffer, length)
        self._check(status, "address")
        return bytes(ffi.buffer(buffer, length[0]))

    def connect(self, role: int, token: bytes, address: bytes, spare: bool = False) -> None:
        """Begin to connect; `spare`: the connection will go on if it loses this lane. `on_change`
        is called later, also if the lane is up or has failed at once."""
        status = lib.psc_lane_connect(self.handle, spare, role, token, address, len(address))
        self._check(status, "connect")

    @property
    def up(self) -> bool:
        return bool(lib.psc_lane_state(self.handle) == lib.PSC_LANE_UP)

    @property
    def failed(self) -> bool:
        return bool(lib.psc_lane_state(self.handle) == lib.PSC_LANE_FAILED)

    @property
    def reason(self) -> str:
        """The reason that the transport gave for the failure of the lane, or ""."""
        buffer = ffi.new("char[]", REASON_MAX)
        lib.psc_lane_reason(self.handle, buffer)
        return text(buffer)

    def matching(self) -> str | None:
        """Return None if the fabric matches messages of this lane, which is up; otherwise the
        reason why it does not, which may be ""."""
        buffer = ffi.new("char[]", REASON_MAX)
        status = lib.psc_lane_matching(self.handle, buffer)
        return None if status == lib.PSC_OK else text(buffer)

    def installed(self) -> None:
        """Give the lane up to a connection, which owns it from now on."""
        del self._lanes[self.id]

    def destroy(self) -> None:
        """Destroy a lane that no connection owns. Idempotent."""
        if self._lanes.pop(self.id, None) is not None:
            lib.psc_lane_destroy(self.handle)

    def _check(self, status: int, what: str) -> None:
        if status < 0:
            reason = self.reason
            error = from_status(status, f"{self.option.name}: {what}")
            raise PscomError(reason) if reason else error


def _ignore() -> None:
    pass


def text(pointer: Any) -> str:
    """Decode a C string of the core."""
    return bytes(ffi.string(pointer)).decode("utf-8", "replace")
