"""The binding layer: the only importer of the C core, and where its statuses
become exceptions."""

from ..errors import from_status
from ._core import ffi, lib

__all__ = ["check", "ffi", "lib"]


def check(status: int, what: str) -> int:
    """The status, or the exception that it stands for if it is an error."""
    if status < 0:
        raise from_status(status, what)
    return status
