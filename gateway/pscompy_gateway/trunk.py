"""Trunks: connections of processes and gateways to gateways, for everything except packets.

Trunks carry the directory of nodes, handshakes between processes, and commands, all of which are
rare. The module is shared by transport/, daemon/ and cli/. A frame is a JSON object with the field
`kind`. Trunks are connections of ordinary sessions, so both ends have proved that they know the key
before a frame is read, and the end of a process is noticed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pscompy import AuthError, Connection, PscomError, Session

FRAME_MAX = 64 << 10  # maximum length of a frame, in bytes
DEPTH_MAX = 4  # maximum number of levels of nested lists and objects in a frame
# highest load of a gateway, in bytes; a larger load that it reports is reduced to this
LOAD_MAX = 1 << 31
GATEWAY_MODULE = 65535  # the module number of gateways; processes must not use it

PAUSE = 0.2  # seconds between attempts to reach a gateway
# seconds between attempts to reach a gateway that holds another key; long, because the gateway logs
# each refusal
REFUSED_PAUSE = 10.0

_KEY_FOR_GATEWAYS = " (PSP_GATEWAY_KEY and PSP_GATEWAY_KEY_FILE precede these for gateways)"

logger = logging.getLogger("pscompy.gateway")

Frame = dict[str, Any]


class BadFrame(PscomError):
    """The other side of a trunk sent a message that is not a frame, a JSON object with `kind`."""


def session(settings: Mapping[str, object]) -> Session:
    """Return a session for connections to gateways, which uses neither gateways nor PSP_RAILS
    itself.

    `settings` are its configuration variables, without the prefix PSP_. Raises `PscomError` if a
    variable is malformed.
    """
    return Session(config={"GATEWAY": 0, "RAILS": "", "DEBUG_STATS": 0, **settings})


def parse(data: bytes | bytearray, whose: object) -> Frame:
    """Parse a frame. `whose` names the sender in errors. Raises `BadFrame`."""
    try:
        frame = json.loads(data)
    except ValueError as error:
        raise BadFrame(f"{whose} sent text that is not JSON: {error}") from error
    except RecursionError:
        raise BadFrame(f"{whose} sent JSON that is nested too deeply") from None
    if not isinstance(frame, dict) or not isinstance(frame.get("kind"), str):
        raise BadFrame(f"{whose} sent a message that is not a frame")
    if _deeper(frame, DEPTH_MAX):
        raise BadFrame(f"{whose} sent a frame that is nested deeper than {DEPTH_MAX}")
    return frame


def _deeper(value: Any, most: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return most == 0 or any(_deeper(it, most - 1) for it in inner)


def node_number() -> int:
    """Return a random 64-bit number, not 0, that identifies a process or gateway."""
    return int.from_bytes(os.urandom(8), "little") | 1


class Trunk:
    """Sends and receives frames (JSON objects) over one connection, in an event loop."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._room = bytearray(FRAME_MAX)

    def send(self, frame: Frame) -> None:
        """Send a frame without waiting. Reports no error: if the trunk has ended, `receive`
        raises."""
        with contextlib.suppress(PscomError):
            self.connection.isend(json.dumps(frame).encode())

    async def receive(self) -> Frame:
        """Return the next frame. Raises `PscomError` if the trunk has ended or the frame is
        malformed."""
        status = await self.connection.irecv(self._room)
        return parse(self._room[: status.nbytes], self.connection.peer)

    def close(self) -> None:
        self.connection.close()


async def keep(
    through: Session,
    address: str,
    use: Callable[[Trunk], Awaitable[None]],
    ended: Callable[[str], object],
    refused: Callable[[AuthError], object] = lambda _: None,
) -> None:
    """Keep a trunk (a connection for frames) to the gateway at `address`, until cancelled.

    use(trunk) uses the trunk until it raises. Then ended(reason) is called, and the gateway is
    tried again after PAUSE seconds. If the gateway holds another key, refused(error) is called
    before ended(reason), and the pause is REFUSED_PAUSE seconds.
    """
    logged = ""
    while True:
        pause = PAUSE
        connection = through.connect(address)
        try:
            await connection.iopen()
            await use(Trunk(connection))
        except PscomError as error:
            if isinstance(error, AuthError):
                pause = REFUSED_PAUSE
                error.args = (f"{error}{_KEY_FOR_GATEWAYS}",)
                refused(error)
            if logged != (logged := str(error)):  # repeated attempts log the same error only once
                logger.info("gateway %s: %s", address, error)
            ended(str(error))
        except Exception as error:  # raised by use() for a malformed frame
            logger.warning("gateway %s sent a malformed frame: %.200r", address, error)
            ended(f"it sent a malformed frame: {error!r:.200}")
        finally:
            connection.close()
        await asyncio.sleep(pause)
