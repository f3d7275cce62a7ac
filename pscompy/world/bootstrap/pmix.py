"""The rank's side of PMIx, the launcher's interface of Open MPI's mpirun and of Slurm.

The wire protocol is not standardised, but the library is: libpmix, which every such launcher
brings. It is loaded by name under such a launcher, and nothing of it is compiled in. A value is
fetched from its rank when it is first needed, so the start costs one barrier for any number of
ranks.
"""

from __future__ import annotations

import ctypes.util
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from cffi import FFI

from pscompy.config.config import set_for_children
from pscompy.errors import ConfigError, PeerLost, ProtocolError, Timeout
from pscompy.world.bootstrap.launcher import Unreported
from pscompy.world.bootstrap.long_values import join, split

_REPLY_TIMEOUT = 60  # seconds to wait for a value of another rank
_LIBRARY = "libpmix.so.2"
# maximum length of a value, in bytes; the library may return longer ones in compressed form
_VALUE_MAX = 2048
# environment variable that holds namespace, rank and process id of the rank
_TAKEN = "PSCOMPY_PMIX_RANK"

# From the PMIx standard (4.0, stable since 2.0): sizes of names, structures, numbers of constants.
# The union in pmix_value_t is declared larger than the library's union; only members that were
# written are read.
_DECLARATIONS = """
typedef struct { char nspace[256]; uint32_t rank; } pmix_proc_t;
typedef struct {
    uint16_t type;
    union { char *string; uint32_t uint32; int integer; uint64_t room[4]; } data;
} pmix_value_t;
typedef struct { char key[512]; uint32_t flags; pmix_value_t value; } pmix_info_t;

int PMIx_Init(pmix_proc_t *proc, pmix_info_t *info, size_t ninfo);
int PMIx_Finalize(const pmix_info_t *info, size_t ninfo);
int PMIx_Abort(int status, const char *msg, pmix_proc_t *procs, size_t nprocs);
int PMIx_Put(uint8_t scope, const char *key, pmix_value_t *val);
int PMIx_Commit(void);
int PMIx_Get(const pmix_proc_t *proc, const char *key, const pmix_info_t *info, size_t ninfo,
             pmix_value_t **val);
int PMIx_Fence_nb(const pmix_proc_t *procs, size_t nprocs, const pmix_info_t *info, size_t ninfo,
                  void (*cbfunc)(int status, void *cbdata), void *cbdata);
const char *PMIx_Error_string(int status);
void free(void *memory);
"""
_GLOBAL = 3  # PMIX_GLOBAL: published for all ranks, on this node and on others
_INT, _STRING, _UINT32 = 6, 3, 14  # types of values: PMIX_INT, PMIX_STRING, PMIX_UINT32
_RANK_WILDCARD = 2**32 - 2  # PMIX_RANK_WILDCARD, which names the whole job instead of a rank
_MISSING = (-46, -24)  # statuses of a missing value: PMIX_ERR_NOT_FOUND, PMIX_ERR_TIMEOUT


class Pmix(Unreported):
    """The launcher by PMIx; implements `Bootstrap`. Raises `ConfigError` if the library is missing,
    or the launcher does not answer."""

    live = False

    def __init__(self, environ: Mapping[str, str]) -> None:
        _refuse_children(environ)
        self._ffi, self._lib = _load(environ)
        self._own = self._ffi.new("pmix_proc_t *")
        status = self._lib.PMIx_Init(self._own, self._ffi.NULL, 0)
        if status != 0:
            raise ConfigError(f"the launcher's PMIx server refuses: {self._text(status)}")
        self.rank: int = self._own.rank
        self.job_id: str = self._ffi.string(self._own.nspace).decode()
        if self.job_id != environ["PMIX_NAMESPACE"]:  # without a launcher the library invents a job
            raise ConfigError("the launcher's PMIx server is gone: unset PMIX_RANK to run alone")
        self.size: int = self._get("pmix.job.size", _RANK_WILDCARD, _UINT32)
        set_for_children(_TAKEN, _place(environ, os.getpid()))
        self._over = threading.Event()
        self._in_barrier = False
        self._status = 0
        self._callback = self._ffi.callback("void(int, void *)", self._passed)

    def put(self, key: str, value: str) -> None:
        for name, text in split(key, value, _VALUE_MAX):
            self._put(name, text)

    def get(self, key: str, rank: int) -> str:
        return join(key, lambda name: str(self._get(name, rank, _STRING)))

    def barrier(self, timeout: float | None = None) -> None:
        if not self._in_barrier:
            self._begin_barrier()
        if not self._over.wait(timeout):
            raise Timeout("not all ranks have arrived in time", peer="launcher")
        self._in_barrier = False
        if self._status != 0:
            raise PeerLost(f"barrier of all ranks: {self._text(self._status)}")

    def finalize(self, blames: int | None = None) -> None:
        self._lib.PMIx_Finalize(self._ffi.NULL, 0)

    def abort(self, code: int) -> None:
        self._lib.PMIx_Abort(code, b"aborted", self._ffi.NULL, 0)

    # ---- the library ----

    def _begin_barrier(self) -> None:
        null = self._ffi.NULL
        self._check(self._lib.PMIx_Commit(), "commit")
        self._over.clear()
        status = self._lib.PMIx_Fence_nb(null, 0, null, 0, self._callback, null)
        self._check(status, "barrier")
        self._in_barrier = True

    def _passed(self, status: int, _: object) -> None:
        """Record the end of a barrier. Called on a thread of the library."""
        self._status = status
        self._over.set()

    def _put(self, key: str, text: str) -> None:
        string = self._ffi.new("char[]", text.encode())
        value = self._ffi.new("pmix_value_t *", {"type": _STRING, "data": {"string": string}})
        self._check(self._lib.PMIx_Put(_GLOBAL, key.encode(), value), f"put {key}")

    def _get(self, key: str, rank: int, kind: int) -> Any:
        """Return the value of type `kind` that a rank has published. Raises `KeyError` if it has
        not published the value in time."""
        process = self._ffi.new("pmix_proc_t *", {"nspace": self._own.nspace, "rank": rank})
        limit = self._ffi.new("pmix_info_t *", {"key": b"pmix.timeout"})
        limit.value.type, limit.value.data.integer = _INT, _REPLY_TIMEOUT
        found = self._ffi.new("pmix_value_t **")
        status = self._lib.PMIx_Get(process, key.encode(), limit, 1, found)
        if status in _MISSING:
            raise KeyError(key)
        self._check(status, f"get {key}")
        return self._unwrap(found[0], key, kind)

    def _unwrap(self, value: Any, key: str, kind: int) -> Any:
        """Return a value of PMIx as a Python object; frees the memory that the library has
        allocated for it."""
        try:
            if value.type != kind:
                raise ProtocolError(f"PMIx value {key} is of type {value.type}", peer="launcher")
            if kind == _UINT32:
                return value.data.uint32
            text = self._ffi.string(value.data.string).decode()
            self._lib.free(value.data.string)
            return text
        finally:
            self._lib.free(value)

    def _check(self, status: int, what: str) -> None:
        if status != 0:
            raise ProtocolError(f"PMIx {what}: {self._text(status)}", peer="launcher")

    def _text(self, status: int) -> str:
        return str(self._ffi.string(self._lib.PMIx_Error_string(status)).decode())


def _place(environ: Mapping[str, str], pid: int) -> str:
    return f"{environ['PMIX_NAMESPACE']} {environ['PMIX_RANK']} {pid}"


def _refuse_children(environ: Mapping[str, str]) -> None:
    """Raise ConfigError in a child of a rank: it would wait in barriers that nobody else enters."""
    place, _, pid = environ.get(_TAKEN, "").rpartition(" ")
    if pid not in ("", str(os.getpid())) and _place(environ, int(pid)) == f"{place} {pid}":
        raise ConfigError(
            f"process {pid} is rank {environ['PMIX_RANK']}; it started this one and handed its"
            " environment on: unset PMIX_RANK to run it alone",
            name="PMIX_RANK",
            value=environ["PMIX_RANK"],
        )


def _load(environ: Mapping[str, str]) -> tuple[Any, Any]:
    """Return a cffi FFI with the declarations of PMIx, and the loaded library: the launcher's own
    if there is one, else the machine's."""
    ffi = FFI()
    ffi.cdef(_DECLARATIONS)
    reasons = []
    for name in _candidates(environ):
        try:
            return ffi, ffi.dlopen(name)
        except OSError as error:
            # without the list of places that cffi has tried, which it appends to the reason
            reasons.append(str(error).partition(".  ")[0])
    raise ConfigError(
        "this launcher speaks PMIx, and its library cannot be loaded (PMIX_PREFIX names the folder"
        f" above its lib): {'; '.join(reasons)}"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[str]:
    for name in ("PMIX_PREFIX", "OPAL_PREFIX"):
        if name in environ:
            yield f"{environ[name]}/lib/{_LIBRARY}"
            yield f"{environ[name]}/lib/openmpi/{_LIBRARY}"
    yield _LIBRARY
    found = ctypes.util.find_library("pmix")
    if found:
        yield found
