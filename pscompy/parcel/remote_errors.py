"""Sends exceptions, as a pickle if the exception has one, and always with the traceback as text."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from pscompy.errors import ParcelError, ProtocolError, RemoteError

if TYPE_CHECKING:
    from pscompy.parcel.objects import Objects


class _Remote(Exception):
    """Carries the traceback from another process, as the cause of a restored exception."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def take_apart(error: BaseException, objects: Objects) -> tuple[bytes | None, str]:
    """Return the pickle of an exception (None if it cannot be pickled), and its traceback as
    text."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        return bytes(objects.serialise(error)), text
    except Exception:
        return None, text


def put_together(given: object, objects: Objects) -> BaseException:
    """Restore the exception that `take_apart` returned.

    Returns a `RuntimeError` for a StopIteration; a `RemoteError` with the traceback if the pickle
    is missing or cannot be restored; and a `ProtocolError` if `given` is no result of `take_apart`.
    """
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], str)):
        return ProtocolError("an object that is not the answer to a call")
    data, text = given
    try:
        error = objects.restore(data) if data is not None else None
    except ParcelError:
        error = None
    if isinstance(error, StopIteration):  # neither a generator nor asyncio can raise it
        error = RuntimeError("the action raised StopIteration")
    if not isinstance(error, Exception):
        return RemoteError(text)
    error.__cause__ = _Remote(text)
    return error
