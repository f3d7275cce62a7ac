"""A simple model of matching as MPI defines it, with which match.c is compared."""

from __future__ import annotations

from dataclasses import dataclass, field

ANY = None


@dataclass(eq=False)
class Sent:
    """A message; `place` is its order of arrival."""

    place: int
    context: int
    source: int
    tag: int
    payload: bytes = field(repr=False)


@dataclass(eq=False)
class Posted:
    """A receive or a probe; ANY matches every source or tag."""

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
    """Posted receives in the order of posting, and unexpected messages in the order of arrival."""

    def __init__(self) -> None:
        self.posted: list[Posted] = []
        self.unexpected: list[Sent] = []

    def arrive(self, message: Sent) -> Posted | None:
        """The receive that gets the message, or None if the message is unexpected."""
        for receive in self.posted:
            if receive.fits(message):
                self.posted.remove(receive)
                return receive
        self.unexpected.append(message)
        return None

    def probe(self, receive: Posted) -> Sent | None:
        """The message that the receive would get."""
        return next((message for message in self.unexpected if receive.fits(message)), None)

    def take(self, receive: Posted) -> Sent | None:
        """Take the message that the receive gets, if there is one."""
        message = self.probe(receive)
        if message is not None:
            self.unexpected.remove(message)
        return message

    def post(self, receive: Posted) -> Sent | None:
        """Take a message, or post the receive if there is none."""
        message = self.take(receive)
        if message is None:
            self.posted.append(receive)
        return message

    def put_back(self, message: Sent) -> Posted | None:
        """Put a message back to its old place, or give it to a receive posted meanwhile."""
        receive = self.arrive(message)
        self.unexpected.sort(key=lambda it: it.place)
        return receive
