"""The World of this process's MPI: opened by MPI_Init, closed by MPI_Finalize or at exit.

`src/host.c` calls these functions. Nothing here may import mpi4py, whose import calls MPI_Init.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

import pscompy
from pscompy import capi
from pscompy_mpi import places

if TYPE_CHECKING:
    from typing import Protocol

    class Native(Protocol):
        """The functions of the library that Python calls: `native_methods` of src/host_native.c."""

        path: str  # of the library

        def comm_create(
            self, context: int, rank: int, size: int, members: list[int] | None, n_first: int
        ) -> int: ...
        def comm_destroy(self, comm: int) -> None: ...
        def comm_move(self, comm: int, context: int) -> None: ...
        def request_promise(self, comm: int) -> int: ...
        def request_keep(self, request: int, code: int) -> None: ...
        def comm_inherit(self, source: int, comm: int) -> None: ...
        def win_create(self, comm: int, size: int, file: int) -> int: ...
        def win_destroy(self, win: int) -> None: ...
        def comm_set_errhandler(self, comm: int, errhandler: int) -> None: ...
        def type_create(
            self, size: int, lb: int, extent: int, true_lb: int, true_extent: int
        ) -> int: ...
        def type_commit(
            self, handle: int, n_blocks: int, blocks: bytes, times: int, elements: bytes
        ) -> None: ...
        def type_free(self, handle: int) -> None: ...
        def call_copy(
            self, function: int, handle: int, keyval: int, state: int, value: int
        ) -> tuple[int, int, int]: ...
        def call_delete(
            self, function: int, handle: int, keyval: int, value: int, state: int
        ) -> int: ...
        def error_add(self, error_class: int, text: str) -> int: ...
        def error_last(self) -> int: ...
        def ended(self, exits: bool) -> None: ...


class State(NamedTuple):
    """MPI in this process, from MPI_Init to its end."""

    native: Native
    world: pscompy.World
    # the connections that are in use, by rank, which C knows by their addresses
    connections: dict[int, pscompy.Connection]


_state: State | None = None


def state() -> State:
    """The state of MPI, which runs."""
    assert _state is not None
    return _state


def open_world(native: Native) -> tuple[int, int, int, int]:
    """Open the World, with a session of its own. Return the addresses of the core's functions and
    of the worker, the rank, and the number of ranks."""
    global _state
    _spare_children(native.path)
    world = pscompy.World()
    _state = State(native, world, {})
    atexit.register(_at_exit)
    return capi.table(), capi.worker(world.session), world.rank, world.size


def _spare_children(library: str) -> None:
    """Take the library, and nothing else, out of LD_PRELOAD: children of this process are no
    ranks."""
    preloaded = places.entries(os.environ.get("LD_PRELOAD", ""))
    others = [it for it in preloaded if os.path.realpath(it) != os.path.realpath(library)]
    if others:
        os.environ["LD_PRELOAD"] = ":".join(others)
    else:
        os.environ.pop("LD_PRELOAD", None)


def create_comms() -> None:
    """Create MPI_COMM_WORLD and MPI_COMM_SELF."""
    from pscompy_mpi import communicators

    world = state().world
    communicators.create(world, name="MPI_COMM_WORLD")
    communicators.create(world.create([world.rank]), name="MPI_COMM_SELF")


def connection(rank: int) -> int:
    """Return the address of the connection to a rank of the job, which C opens."""
    world, connections = state().world, state().connections
    return capi.connection(connections.setdefault(rank, world.connection(rank)))


def drain() -> None:
    """Deliver what the core has completed: call functions of collectives, and call-backs."""
    capi.drain(state().world.session)


def comm_ended(context: int) -> None:
    """Close the communicator with this context, which the program has freed."""
    from pscompy_mpi import communicators

    communicators.close(context)


def call(module: str, name: str, codes: str, arguments: list[object]) -> list[object] | int:
    """Call an MPI function that lives in Python."""
    from pscompy_mpi import carrier

    return carrier.call(module, name, codes, arguments)


# ---- the end ----


def finalize(exits: bool = False) -> None:
    """Wait for all ranks, and end MPI; exits: because the process does."""
    from pscompy_mpi import attributes, constants

    try:
        attributes.delete_all("c", constants.COMM_SELF)
    finally:
        _end(None, exits)


def abort(code: int) -> None:
    """End all ranks at once."""
    state().world.abort(code)


def _at_exit() -> None:
    """End MPI before the interpreter ends. After an uncaught exception other ranks may wait for
    messages of this one for ever, so it does not wait for them, and the launcher is told."""
    error = getattr(sys, "last_value", None)
    if _state is None:
        return
    if isinstance(error, BaseException):
        _end(error, exits=True)
    else:
        finalize(exits=True)


def _end(error: BaseException | None, exits: bool) -> None:
    global _state
    ended, _state = state(), None
    ended.native.ended(exits)  # before the World is closed, whose worker other threads may use
    ended.world.__exit__(type(error) if error else None, error, None)
