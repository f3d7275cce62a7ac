"""Exceptions that travel: their pickle where they have one, and always their traceback."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from pscompy.errors import ParcelError, ProtocolError, RemoteError

if TYPE_CHECKING:
    from pscompy.parcel.objects import Objects


class _Remote(Exception):
    """The traceback of an exception in another process: its cause here."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def take_apart(error: BaseException, objects: Objects) -> tuple[bytes | None, str]:
    """An exception as its pickle (None: it has none), and its traceback."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        return bytes(objects.serialise(error)), text
    except Exception:
        return None, text


def put_together(given: object, objects: Objects) -> BaseException:
    """The exception again, or a `RemoteError` with what is known of it."""
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], str)):
        return ProtocolError("this is no answer of an action")
    data, text = given
    try:
        error = objects.restore(data) if data is not None else None
    except ParcelError:
        error = None
    if not isinstance(error, Exception):
        return RemoteError(text)
    error.__cause__ = _Remote(text)
    return error
