"""The binding layer: the only module that imports the C core. It turns the
core's statuses into exceptions."""

from pathlib import Path

from ..errors import from_status

try:
    from ._core import ffi, lib
except ModuleNotFoundError as error:
    if error.name != f"{__name__}._core":  # another module, such as cffi
        raise
    _folder = Path(__file__).absolute().parents[2]
    raise ImportError(
        f"nothing is built in {_folder}, the source folder of pscompy: run Python in another"
        f" folder to use an installed pscompy, or build here: pip install -e {_folder}"
    ) from error

__all__ = ["check", "ffi", "lib"]

# cffi makes each type and each function at its first use, and aborts the process if a finalizer of
# the garbage collector uses the same one in the middle of that. So all are made here.
for _name in ffi.list_types()[0]:
    ffi.typeof(_name)
for _name in dir(lib):
    getattr(lib, _name)


def check(status: int, what: str) -> int:
    """Return the status. If it is an error, raise the exception that stands for it."""
    if status < 0:
        raise from_status(status, what)
    return status
