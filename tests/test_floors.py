"""The order of C files within a folder: a file calls, and includes, only what stands below it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import pscompy

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    Path(pscompy.get_include()) != ROOT or not (ROOT / "ARCHITECTURE.md").exists(),
    reason="pscompy is installed without its source folder",
)

# C files from the top down; a file calls only functions of files further down.
FLOORS = {
    "pscompy/plugins/loop": ("transport", "receive", "memory", "send", "ep", "sleep"),
    "pscompy/plugins/ib": (
        *("transport", "sleep", "settings", "receive", "complete", "connect", "ep", "memory"),
        *("recover", "send", "ring", "post", "window", "cache", "proof", "queue", "device"),
        "select_device",
    ),
    "pscompy/plugins/portals": (
        *("transport", "settings", "receive", "connect", "match", "memory", "sleep", "ep", "send"),
    ),
    "pscompy/plugins/portals/psptl": (
        *("device", "event", "channel", "match", "deliver", "withhold", "source", "receive"),
        *("tag", "rma", "send", "region", "backlog", "failure", "fence", "provider"),
    ),
    "softni/pscompy_softni": (
        *("library", "interface", "thread", "api_wait", "progress", "receive", "handshake"),
        *("api_move", "life", "target", "send", "frame", "hello", "wire", "peer", "operation"),
        *("api_entry", "api_table", "match", "entry", "table", "list", "counter", "queue"),
        *("fault_injection", "wakeup", "pool", "region"),
    ),
    "pscompy/plugins/shm": (
        *("transport", "calibrate", "settings", "listen", "connect", "sleep", "inbox", "trial"),
        *(
            "ep",
            "resources",
            "receive",
            "map",
            "adverts",
            "place",
            "memory",
            "share",
            "cma",
            "send",
        ),
        *("state", "socket", "active", "source", "node", "bitmap", "ring"),
    ),
    "pscompy/plugins/tcp": (
        *("transport", "listen", "connect", "dial", "ep", "receive", "send", "pace", "rail"),
        *("state", "sleep", "network", "address", "settings"),
    ),
    "pscompy/transport/python": ("pump", "transport", "ep", "queue", "proof"),
    "pscompy/api/c": (
        *("module", "communicator", "connection_type", "worker_type", "request", "persistent"),
        *("sleeper", "object", "access", "run", "outcome", "message", "worker_end", "waiting"),
        *(
            "await",
            "completion",
            "cancel",
            "request_refs",
            "request_life",
            "result",
            "requeue",
            "start",
            "op",
        ),
        *("buffers", "readonly_lease", "rank_map", "errors", "call", "array", "timeout", "strided"),
        *("state", "recv_buffer", "memory", "connection", "guard", "args"),
    ),
    "gateway/pscompy_gateway/transport": (
        *("transport", "notes", "ep_end", "receive", "probe", "ep", "send", "packets", "paths"),
        "note_queue",
    ),
    "gateway/pscompy_gateway/daemon": ("lifetime", "forward", "routing", "accounting"),
}
# A function that other files can call: not static, or inline in a header.
DEFINITION = re.compile(
    r"^(?:static inline |(?!static\b))[a-z_][\w *]*?\b(\w+)\([^;{]*\)\n\{", re.M
)


def without_comments(path: Path) -> str:
    return re.sub(r"/\*.*?\*/", "", path.read_text() if path.exists() else "", flags=re.S)


def upward(folder: Path, floors: tuple[str, ...]) -> list[str]:
    """The functions that a file of this folder calls although their file is not further down.

    A function that is inline in a header belongs to the C file of the same name."""
    files = [path for path in folder.glob("*.c") if path.name != "_native.c"]
    code = {path.stem: without_comments(path) for path in files}
    headers = {path.stem: without_comments(path.with_suffix(".h")) for path in files}
    assert sorted(code) == sorted(floors)
    homes = {
        name: stem
        for stem, text in code.items()
        for name in DEFINITION.findall(text + headers[stem])
    }
    return sorted(
        f"{stem} -> {homes[name]}: {name}"
        for stem, text in code.items()
        for name in set(re.findall(r"\w+", text)) & set(homes)
        if floors.index(homes[name]) < floors.index(stem)
    )


@pytest.mark.parametrize("folder", FLOORS)
def test_floors(folder: str) -> None:
    assert upward(ROOT / folder, FLOORS[folder]) == []


@pytest.mark.parametrize("folder", FLOORS)
def test_a_step_up_is_found(folder: str, tmp_path: Path) -> None:
    copy, floors = tmp_path / "copy", FLOORS[folder]
    shutil.copytree(ROOT / folder, copy)
    top, bottom = copy / f"{floors[0]}.c", copy / f"{floors[-1]}.c"
    top.write_text(f"{top.read_text()}\nvoid at_the_top(void)\n{{\n}}\n")
    bottom.write_text(f"{bottom.read_text()}\nvoid below(void)\n{{\n    at_the_top();\n}}\n")
    assert upward(copy, floors) == [f"{floors[-1]} -> {floors[0]}: at_the_top"]


# ---- the order of files in the core --------------------------------------------

# Files of the core from the bottom to the top, also within a row: a file, with its header, includes
# only files listed before it. So calls go in one direction; calls in the other direction go only
# through upward.h.
CORE_ROWS = (
    "api control wire counters descriptor layout pieces iface_check",
    "types/request completion request control_events",
    "types/am types/ends types/flow types/interfaces types/matching types/memory types/sleeper",
    "types/work types/worker types/lane types/connection",
    "lane_early upward progress/pace progress/spin progress/follow progress/sleep",
    "memory/segment memory/blocks",
    "worker worker_control finish conn_queue",
    "memory/pool memory/access lane conn conn_flush lane_upcalls",
    "progress/progress progress/background progress/sleeper progress/thread progress/wait iface",
    "conn_control",
    "proto/credit proto/rates proto/stripe proto/rail proto/replay proto/am_node",
    "proto/match_bits proto/position proto/protocol",
    "proto/match_list proto/match_queue proto/unexpected",
    "proto/rndv_keys proto/match proto/describe",
    "proto/am proto/eager proto/region proto/rndv",
    "proto/rndv_direct proto/rndv_am proto/rndv_fin",
    "proto/am_announced proto/refuse proto/rndv_rts proto/recv proto/requeue",
    "proto/tuple_am proto/tuple proto/tag_send proto/tag proto/lend proto/rma proto/bundle",
    "proto/send proto/am_post proto/list",
    "proto/proto proto/protocols",
    "api_table api_message api_memory api_holdings lifetime",
)
CORE_FLOORS = [unit for floor in CORE_ROWS for unit in floor.split()]
CORE = ROOT / "pscompy/core"
# Headers whose functions several files implement: api_*.c, and those that the control plane calls.
WITHOUT_A_HEADER = {
    *("api_message", "api_memory", "api_holdings", "conn_control", "lifetime", "proto/describe"),
    "worker_control",
}


def unit_of(path: Path, core: Path) -> str:
    """The path of a file of the core or of the protocols, which stand beside the core."""
    unit = path.resolve().relative_to(core.resolve().parent).with_suffix("").as_posix()
    return unit.removeprefix("core/")


def core_files(core: Path) -> list[Path]:
    found = [*core.rglob("*.[ch]"), *(core.parent / "proto").glob("*.[ch]")]
    return sorted(path for path in found if path.name != "_core.c")


def upward_includes(core: Path) -> Iterator[str]:
    """Every include of the core that does not lead to a lower file."""
    place = {unit: number for number, unit in enumerate(CORE_FLOORS)}
    for path in core_files(core):
        unit = unit_of(path, core)
        for name in re.findall(
            r'^#include "((?!pscompy/transport/)[^"]+)"', path.read_text(), re.M
        ):
            other = unit_of(path.parent / name, core)
            if other != unit and place.get(other, len(place)) >= place.get(unit, -1):
                yield f"{unit} includes {other}"


def test_the_core_includes_only_downward() -> None:
    assert list(upward_includes(CORE)) == []


@pytest.mark.parametrize(
    ("name", "include"),
    [("request.c", "finish.h"), ("../proto/match.h", "recv.h"), ("lane.h", "conn.h")],
)
def test_an_include_upward_is_seen(name: str, include: str, tmp_path: Path) -> None:
    core = tmp_path / "core"
    core.mkdir()
    path = core / name
    path.parent.resolve().mkdir(exist_ok=True)
    path.write_text(f'#include "{include}"\n')
    unit, other = unit_of(path, core), unit_of(path.parent / include, core)
    assert list(upward_includes(core)) == [f"{unit} includes {other}"]


def test_every_file_of_the_core_has_a_floor_and_a_header() -> None:
    files = core_files(CORE)
    assert sorted({unit_of(path, CORE) for path in files}) == sorted(CORE_FLOORS)
    bare = {
        unit_of(it, CORE) for it in files if it.suffix == ".c" and not it.with_suffix(".h").exists()
    }
    assert bare == WITHOUT_A_HEADER
