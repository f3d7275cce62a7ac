"""Matching as MPI defines it, in the plainest words: what match.c is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

ANY = None


@dataclass(eq=False)
class Sent:
    """A message; `place` is when it arrived."""

    place: int
    context: int
    source: int
    tag: int
    payload: bytes = field(repr=False)


@dataclass(eq=False)
class Posted:
    """A receive, or what looks for messages as one does; ANY fits everything."""

    context: int
    source: int | None
    tag: int | None

    def fits(self, message: Sent) -> bool:
        return (
            self.context == message.context
            and self.source in (ANY, message.source)
            and self.tag in (ANY, message.tag)
        )


class Matcher:
    """Receives that wait, in the order in which they were posted; messages that nobody wanted
    yet, in the order in which they came."""

    def __init__(self) -> None:
        self.posted: list[Posted] = []
        self.unexpected: list[Sent] = []

    def arrive(self, message: Sent) -> Posted | None:
        """The receive that gets it."""
        for receive in self.posted:
            if receive.fits(message):
                self.posted.remove(receive)
                return receive
        self.unexpected.append(message)
        return None

    def probe(self, receive: Posted) -> Sent | None:
        """The message that it would get."""
        return next((message for message in self.unexpected if receive.fits(message)), None)

    def take(self, receive: Posted) -> Sent | None:
        """The message that it gets, if there is one."""
        message = self.probe(receive)
        if message is not None:
            self.unexpected.remove(message)
        return message

    def post(self, receive: Posted) -> Sent | None:
        """The same; it waits if there is none."""
        message = self.take(receive)
        if message is None:
            self.posted.append(receive)
        return message

    def put_back(self, message: Sent) -> Posted | None:
        """It goes where it stood, or to a receive that would have got it meanwhile."""
        receive = self.arrive(message)
        self.unexpected.sort(key=lambda it: it.place)
        return receive
