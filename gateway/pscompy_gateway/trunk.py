"""Trunks: connections between processes and gateways that carry what is rare: the directory of
nodes, handshakes between processes, and commands. Shared by transport/, daemon/ and cli/.

A frame is a JSON object with the field `kind`. Trunks are connections of ordinary sessions, so
both ends have proved the key before anything is read, and the end of a process is noticed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pscompy import Connection, PscomError, Session

FRAME_MAX = 64 << 10  # bytes
DEPTH_MAX = 4  # lists and objects within each other
LOAD_MAX = 1 << 31  # bytes: a larger load that a gateway reports counts as this
GATEWAY_MODULE = 65535  # the module of gateways; no process is in it

PAUSE = 0.2  # seconds between attempts to reach a gateway

logger = logging.getLogger("pscompy.gateway")

Frame = dict[str, Any]


class BadFrame(PscomError):
    """The other side sent something that is no frame."""


def session(settings: Mapping[str, object]) -> Session:
    """A session to gateways, which does not go through gateways itself."""
    return Session(config={"GATEWAY": 0, "DEBUG_STATS": 0, **settings})


def parse(data: bytes | bytearray, whose: object) -> Frame:
    """Parse a frame, or raise `BadFrame`."""
    try:
        frame = json.loads(data)
    except ValueError as error:
        raise BadFrame(f"{whose} sent no JSON: {error}") from error
    except RecursionError:
        raise BadFrame(f"{whose} sent JSON that is nested too deeply") from None
    if not isinstance(frame, dict) or not isinstance(frame.get("kind"), str):
        raise BadFrame(f"{whose} sent no frame")
    if _deeper(frame, DEPTH_MAX):
        raise BadFrame(f"{whose} sent a frame that is nested deeper than {DEPTH_MAX}")
    return frame


def _deeper(value: Any, most: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return most == 0 or any(_deeper(it, most - 1) for it in inner)


def node_number() -> int:
    """The number of a process among all that use gateways; not 0."""
    return int.from_bytes(os.urandom(8), "little") | 1


class Trunk:
    """Frames over one connection, in an event loop."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._room = bytearray(FRAME_MAX)

    def send(self, frame: Frame) -> None:
        """Send in the background. If the trunk has ended, `receive` raises."""
        with contextlib.suppress(PscomError):
            self.connection.isend(json.dumps(frame).encode())

    async def receive(self) -> Frame:
        """The next frame. Raises `PscomError` if the trunk has ended or the frame is malformed."""
        status = await self.connection.irecv(self._room)
        return parse(self._room[: status.nbytes], self.connection.peer)

    def close(self) -> None:
        self.connection.close()


async def keep(
    through: Session,
    address: str,
    attend: Callable[[Trunk], Awaitable[None]],
    ended: Callable[[str], object],
) -> None:
    """Keep a trunk to a gateway: `attend` uses it until it raises, then `ended` gets the reason and
    the next attempt begins."""
    logged = ""
    while True:
        connection = through.connect(address)
        try:
            await connection.iopen()
            await attend(Trunk(connection))
        except PscomError as error:
            if logged != (logged := str(error)):  # a gateway that is not there is tried often
                logger.info("gateway %s: %s", address, error)
            ended(str(error))
        except Exception as error:  # a malformed frame
            logger.warning("gateway %s sent nonsense: %.200r", address, error)
            ended(f"it sent nonsense: {error!r:.200}")
        finally:
            connection.close()
        await asyncio.sleep(PAUSE)
