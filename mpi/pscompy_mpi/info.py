"""Infos: keys with values, in the order in which they were set."""

from __future__ import annotations

from pscompy_mpi import constants, handles
from pscompy_mpi.carrier import MpiError


class Info:
    def __init__(self, pairs: dict[str, str] | None = None, handle: int | None = None) -> None:
        self.pairs = dict(pairs or {})
        self.handle = handles.add("f", self) if handle is None else handle


ENV = Info({"thread_level": "MPI_THREAD_MULTIPLE"}, constants.INFO_ENV)
handles.objects["f"][ENV.handle] = ENV


def info_create() -> Info:
    return Info()


def info_create_env(n: int, strings: int) -> Info:
    return Info(ENV.pairs)


def get_hw_resource_info() -> Info:
    """The parts of a machine that comm_split_type knows, and whether this process runs in one."""
    return Info({"mpi_shared_memory": "true"})


def info_dup(info: Info) -> Info:
    return Info(info.pairs)


def info_free(info: Info) -> None:
    if info is ENV:
        raise MpiError(constants.ERR_INFO)
    handles.remove("f", info.handle)


def info_set(info: Info, key: str, value: str) -> None:
    _check(key)
    if not value or len(value.encode()) >= constants.MAX_INFO_VAL:
        raise MpiError(constants.ERR_INFO_VALUE)
    info.pairs[key] = value


def info_delete(info: Info, key: str) -> None:
    _check(key)
    if key not in info.pairs:
        raise MpiError(constants.ERR_INFO_NOKEY)
    del info.pairs[key]


def info_get(info: Info, key: str, valuelen: int) -> tuple[str | None, int]:
    _check(key)
    return info.pairs.get(key), key in info.pairs


def info_get_valuelen(info: Info, key: str) -> tuple[int | None, int]:
    _check(key)
    value = info.pairs.get(key)
    return None if value is None else len(value.encode()), value is not None


def info_get_string(info: Info, key: str, buflen: int) -> tuple[int | None, str | None, int]:
    """Return the room that the value needs, the value, and whether there is one."""
    _check(key)
    value = info.pairs.get(key)
    if value is None:
        return None, None, False
    return len(value.encode()) + 1, value if buflen > 0 else None, True


def info_get_nkeys(info: Info) -> int:
    return len(info.pairs)


def info_get_nthkey(info: Info, n: int) -> str:
    if n not in range(len(info.pairs)):
        raise MpiError(constants.ERR_ARG)
    return list(info.pairs)[n]


def _check(key: str) -> None:
    if not key or len(key.encode()) > constants.MAX_INFO_KEY:
        raise MpiError(constants.ERR_INFO_KEY)
