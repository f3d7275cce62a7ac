"""Meetings: modules (parts of a machine) that different launchers started exchange texts through
gateways.

Each module sends its text to all gateways and uses the first complete answer. Gateways add no state
of their own, so all answers are alike, and any gateway may end as long as one remains.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from pscompy.errors import AuthError, ConfigError, NameInUse, PeerLost, PscomError, Timeout
from pscompy.world.bootstrap.join import Join
from pscompy_gateway.transport import servers
from pscompy_gateway.transport.config import VARIABLES
from pscompy_gateway.trunk import Frame, Trunk, keep, session

PIECE = 32 << 10  # maximum number of characters of a module's text in one frame
# seconds within which a module that left one gateway must be connected to another one
LEFT_SECONDS = 3.0


class Meeting:
    """One module's side of a meeting (modules exchange texts through gateways); implements
    `pscompy.world.bootstrap.join.Meeting`.

    Raises `ConfigError` if PSP_GW_SERVER names no gateway.
    """

    def __init__(self, join: Join) -> None:
        config = join.configured(GATEWAY=VARIABLES)
        self._gateways = servers.parse(config["GATEWAY_SERVER"]).gateways
        if not self._gateways:
            raise ConfigError("PSP_JOIN needs PSP_GW_SERVER", name="PSP_GW_SERVER")
        self._join = join
        self._member = os.urandom(12).hex()
        names = ("KEY", "KEY_FILE", "MSA_MODULE_ID")
        self._session = session({name: config[name] for name in names})
        self._trunks: dict[str, Trunk] = {}
        self._reasons = dict.fromkeys(self._gateways, "no answer so far")
        self._number = -1
        self._text = ""
        self._pieces: dict[tuple[str, int], dict[int, str]] = {}
        # numbers of the modules that have joined the meeting, as the gateways report
        self._seen: set[int] = set()
        self._answer: concurrent.futures.Future[Mapping[int, str]] = concurrent.futures.Future()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="pscompy meeting", daemon=True)
        self._thread.start()

    def exchange(self, number: int, text: str, timeout: float | None) -> Mapping[int, str]:
        if number != self._number:
            self._answer = concurrent.futures.Future()
            self._loop.call_soon_threadsafe(self._begin, number, text)
        try:
            return self._answer.result(timeout)
        except concurrent.futures.TimeoutError:
            raise Timeout(self._missing(timeout)) from None

    def _missing(self, timeout: float | None) -> str:
        joined = ", ".join(map(str, sorted(self._seen | {self._join.module})))
        if self._trunks:
            return (
                f"{self._join.name}: of {self._join.modules} modules only those with the number"
                f" {joined} joined within {timeout:g} s (PSP_JOIN_TIMEOUT); PSP_MSA_MODULE_ID is"
                f" {self._join.module} here"
            )
        reasons = "; ".join(f"{address}: {why}" for address, why in self._reasons.items())
        return f"{self._join.name}: no gateway is there ({reasons})"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._session.close()

    # ---- the thread ----

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        tasks = [
            self._loop.create_task(
                keep(
                    self._session,
                    it,
                    partial(self._use, it),
                    partial(self._down, it),
                    self._refused,
                )
            )
            for it in self._gateways
        ]
        self._loop.run_forever()
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def _begin(self, number: int, text: str) -> None:
        self._number, self._text = number, text
        self._pieces.clear()
        for trunk in self._trunks.values():
            self._send_text(trunk)

    async def _use(self, address: str, trunk: Trunk) -> None:
        self._trunks[address] = trunk
        if self._number >= 0:
            self._send_text(trunk)
        while True:
            self._on_frame(address, await trunk.receive())

    def _down(self, address: str, reason: str) -> None:
        self._reasons[address] = reason
        self._trunks.pop(address, None)

    def _refused(self, error: AuthError) -> None:
        """Handle the refusal of a gateway that holds another key: the meeting fails, unless another
        gateway is connected."""
        if not self._trunks:
            self._fail(AuthError(f"{self._join.name}: {error}"))

    def _send_text(self, trunk: Trunk) -> None:
        for piece in pieces(self._text):
            trunk.send(
                {
                    "kind": "join",
                    "name": self._join.name,
                    "modules": self._join.modules,
                    "module": self._join.module,
                    "member": self._member,
                    "number": self._number,
                    **piece,
                }
            )

    def _on_frame(self, address: str, frame: Frame) -> None:
        if frame["kind"] == "refused":
            self._fail(NameInUse(str(frame["reason"])))
        elif frame["kind"] == "here":
            self._seen.add(frame["module"])
        elif frame["kind"] == "leaving":
            self._down(address, "it is being stopped")
        elif frame["kind"] == "left":
            self._seen.discard(frame["module"])
            self._loop.call_later(LEFT_SECONDS, self._fail_if_left, frame["module"])
        elif frame["kind"] == "joined" and frame["number"] == self._number:
            self._on_joined(address, frame)

    def _on_joined(self, address: str, frame: Frame) -> None:
        """Store a piece of a module's text. The answer is complete when all pieces of all modules
        have arrived from the same gateway."""
        key = (address, frame["module"])
        self._pieces.setdefault(key, {})[frame["piece"]] = frame["text"]
        whole = {
            module: "".join(text for _, text in sorted(parts.items()))
            for (at, module), parts in self._pieces.items()
            if at == address and len(parts) == frame["of"].get(str(module))
        }
        if len(whole) == self._join.modules and not self._answer.done():
            self._answer.set_result(whole)

    def _fail_if_left(self, module: int) -> None:
        if module not in self._seen:
            self._fail(PeerLost(f"{self._join.name}: module {module} has left"))

    def _fail(self, error: PscomError) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)


def pieces(text: str) -> list[dict[str, Any]]:
    """Divide a text into pieces, each as the fields of one frame."""
    count = max(1, -(-len(text) // PIECE))
    return [
        {"piece": i, "count": count, "text": text[i * PIECE : (i + 1) * PIECE]}
        for i in range(count)
    ]


Send = Callable[[Frame], object]


class _Module:
    """A module in a meeting. `member` identifies its session. `send` sends a frame to the module,
    or is None if the module has no trunk to this gateway. `through` has the `send` functions of the
    neighbour gateways that have forwarded frames of the module."""

    def __init__(self, member: str) -> None:
        self.member = member
        self.send: Send | None = None
        self.through: set[Send] = set()


class Gathering:
    """A gateway's record of one meeting: its modules, and the text that each module sent last."""

    def __init__(self, name: str, modules: int) -> None:
        self.name = name
        self.modules = modules
        self._members: dict[int, _Module] = {}
        self._given: dict[int, tuple[int, dict[int, str], int]] = {}

    @property
    def empty(self) -> bool:
        return not self._members

    def take(self, send: Send, frame: Frame, forwarded: bool) -> bool:
        """Store a piece of a module's text. Once the texts of all modules are complete, send all of
        them to all modules.

        `send` sends to the module, or, if the frame was `forwarded`, to the neighbour gateway that
        forwarded the frame. Returns False if the piece is not new.
        """
        module, number = int(frame["module"]), int(frame["number"])
        member, piece, text = str(frame["member"]), int(frame["piece"]), str(frame["text"])
        if reason := self._wrong(module, member, int(frame["modules"])):
            if not forwarded:
                send({"kind": "refused", "reason": f"{self.name}: {reason}"})
            return False
        self._enter(module, member, send, forwarded)
        given = self._given.get(module)
        if given is None or given[0] != number:
            given = self._given[module] = (number, {}, int(frame["count"]))
        new = given[1].get(piece) != text
        given[1][piece] = text
        self._answer_if_complete(number)
        return new

    def _wrong(self, module: int, member: str, modules: int) -> str:
        known = self._members.get(module)
        if known is not None and known.member != member:
            return f"there is a module {module} already"
        return f"has {self.modules} modules, not {modules}" if modules != self.modules else ""

    def _enter(self, module: int, member: str, send: Send, forwarded: bool) -> None:
        new = module not in self._members
        it = self._members.setdefault(module, _Module(member))
        if forwarded:
            it.through.add(send)
        elif it.send is not send:
            it.send, new = send, True
            for there in self._members:
                send({"kind": "here", "module": there})
        if new:
            self._broadcast({"kind": "here", "module": module})

    def _broadcast(self, frame: Frame) -> None:
        for it in self._members.values():
            if it.send is not None:
                it.send(frame)

    def _answer_if_complete(self, number: int) -> None:
        whole = [g for g in self._given.values() if g[0] == number and len(g[1]) == g[2]]
        if len(whole) < self.modules:
            return
        of = {str(module): given[2] for module, given in self._given.items()}
        for module, (_, texts, _) in self._given.items():
            for piece, text in texts.items():
                fields = {"number": number, "module": module, "piece": piece, "text": text}
                self._broadcast({"kind": "joined", "of": of, **fields})

    def frames(self) -> Iterator[Frame]:
        """Yield all pieces of texts that this gateway has received, as frames for a neighbour
        gateway that has just connected."""
        for module, (number, texts, count) in self._given.items():
            who = {"name": self.name, "modules": self.modules, "module": module}
            for piece, text in texts.items():
                what = {"number": number, "piece": piece, "count": count, "text": text}
                yield {"kind": "join", "member": self._members[module].member, **who, **what}

    def leave(self, send: Send) -> list[Frame]:
        """Handle the end of the trunk whose function is `send`. A module at its other end is
        removed, and the returned frames report this to the neighbour gateways. If a gateway was at
        its other end, the modules that only that gateway knew are removed without a report, because
        the other gateways notice the end of a gateway themselves."""
        gone = [(module, it) for module, it in self._members.items() if it.send is send]
        for module, it in list(self._members.items()):
            it.through.discard(send)
            if it.send is None and not it.through:
                self.forget(module, it.member)
        return [
            {"kind": "parted", "name": self.name, "module": module, "member": it.member}
            for module, it in gone
            if self.forget(module, it.member)
        ]

    def forget(self, module: int, member: str) -> bool:
        """Remove a module from the meeting, and notify the other modules. Returns False if the
        module is not in the meeting."""
        if module not in self._members or self._members[module].member != member:
            return False
        del self._members[module]
        self._given.pop(module, None)
        self._broadcast({"kind": "left", "module": module})
        return True
