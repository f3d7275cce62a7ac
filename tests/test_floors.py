"""The order of C files within a folder: a file calls only what stands below it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
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
            "memory",
            "copy",
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
        *(
            "module",
            "communicator",
            "collective",
            "plain",
            "connection_type",
            "worker_type",
            "request_type",
            "persistent",
        ),
        *("sleeper", "object", "access", "run", "outcome", "message", "worker_end", "waiting"),
        *(
            "await",
            "completion",
            "cancel",
            "request_refs",
            "request_life",
            "result",
            "requeue",
            "call",
            "group",
            "numbers",
            "operation",
        ),
        *("buffers", "readonly_lease", "rank_map", "errors", "array", "timeout", "strided"),
        *("state", "recv_buffer", "memory", "connection", "guard", "args"),
    ),
    "gateway/pscompy_gateway/transport": (
        *("transport", "notes", "ep_end", "receive", "probe", "ep", "send", "packets", "paths"),
        "note_queue",
    ),
    "gateway/pscompy_gateway/daemon": ("lifetime", "forward", "routing", "accounting"),
}
GENERATED = ("_core.c", "_native.c")
# A function that other files can call: not static, or inline in a header.
DEFINITION = re.compile(
    r"^(?:static inline |(?!static\b))[a-z_][\w *]*?\b(\w+)\([^;{]*\)\n\{", re.M
)


# The part of a header whose functions belong to a C file beside it.
SECTION = re.compile(r"^/\* -+ (\w+)\.c -+ \*/$", re.M)


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def sections(header: Path) -> Iterator[tuple[Path, str]]:
    """The parts of a header, each with the C file that its functions belong to: the one that the
    part names, else the one of the header's name."""
    own, *others = SECTION.split(header.read_text())
    for name, part in zip([header.stem, *others[::2]], [own, *others[1::2]], strict=True):
        yield header.parent / f"{name}.c", without_comments(part)


def upward(sources: dict[str, Path], floors: Sequence[str]) -> list[str]:
    """The functions that a file calls although their file is not further down."""
    code = {path: without_comments(path.read_text()) for path in sources.values()}
    assert sorted(sources) == sorted(floors)
    headers = {header for path in code for header in path.parent.glob("*.h")}
    parts = [*code.items(), *(part for header in headers for part in sections(header))]
    homes = {name: it for it, text in parts if it in code for name in DEFINITION.findall(text)}
    place = {sources[unit]: number for number, unit in enumerate(floors)}
    return sorted(
        f"{floors[place[path]]} -> {floors[place[homes[name]]]}: {name}"
        for path, text in code.items()
        for name in set(re.findall(r"\w+", text)) & set(homes)
        if place[homes[name]] < place[path]
    )


def in_folder(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in folder.glob("*.c") if path.name not in GENERATED}


@pytest.mark.parametrize("folder", FLOORS)
def test_floors(folder: str) -> None:
    assert upward(in_folder(ROOT / folder), FLOORS[folder]) == []


@pytest.mark.parametrize("folder", FLOORS)
def test_a_step_up_is_found(folder: str, tmp_path: Path) -> None:
    copy, floors = tmp_path / "copy", FLOORS[folder]
    shutil.copytree(ROOT / folder, copy)
    plant(copy / f"{floors[0]}.c", copy / f"{floors[-1]}.c")
    assert upward(in_folder(copy), floors) == [f"{floors[-1]} -> {floors[0]}: at_the_top"]


def plant(top: Path, bottom: Path) -> None:
    """Have the lowest file call a function of the topmost one."""
    top.write_text(f"{top.read_text()}\nvoid at_the_top(void)\n{{\n}}\n")
    bottom.write_text(f"{bottom.read_text()}\nvoid below(void)\n{{\n    at_the_top();\n}}\n")


# ---- the order of files in the core, the protocols and the collectives -----------

# C files from the bottom to the top, also within a row. A function is called from below only
# through upward.h, or the table of a protocol.
CORE_ROWS = (
    "descriptor layout pieces iface_check",
    "completion request control_events",
    "lane_early progress/pace progress/spin progress/follow progress/sleep",
    "memory/segment memory/blocks",
    "lost_ranks worker worker_control finish conn_queue",
    "memory/pool memory/access lane conn conn_flush lane_upcalls",
    "progress/progress progress/background progress/sleeper progress/thread progress/wait iface",
    "conn_control",
    "proto/credit proto/rates proto/stripe proto/rail proto/replay proto/am_node",
    "proto/match_list proto/match_queue proto/unexpected",
    "proto/rndv_keys proto/match proto/describe",
    "proto/am proto/eager proto/region proto/rndv",
    "proto/rndv_direct proto/rndv_am proto/rndv_fin",
    "proto/am_announced proto/refuse proto/rndv_rts proto/recv proto/requeue",
    "proto/tuple_am proto/tuple proto/tag_send proto/tag proto/lend proto/rma proto/bundle",
    "proto/contexts proto/send proto/am_post proto/list",
    "proto/proto proto/protocols",
    "coll/reduce coll/plan coll/parts coll/pairs coll/modules coll/doubling coll/tree coll/choice",
    "coll/plans coll/run coll/check coll/loss coll/messages coll/advance coll/operations",
    "coll/group",
    "api_message api_memory api_holdings api_table lifetime",
)
CORE_FLOORS = [unit for row in reversed(CORE_ROWS) for unit in reversed(row.split())]
CORE = ROOT / "pscompy/core"
ROOMS = ("proto", "coll")


def in_core(core: Path) -> dict[str, Path]:
    """The files of the core, and of the rooms that stand beside the core."""
    found = [*core.rglob("*.c"), *(it for room in ROOMS for it in (core.parent / room).glob("*.c"))]
    units = {path.relative_to(core.parent).with_suffix("").as_posix(): path for path in found}
    return {
        unit.removeprefix("core/"): it for unit, it in units.items() if it.name not in GENERATED
    }


def test_the_core_calls_only_downward() -> None:
    assert upward(in_core(CORE), CORE_FLOORS) == []


@pytest.mark.parametrize("top", ["lifetime", "lane", "proto/recv", "coll/reduce"])
def test_a_step_up_in_the_core_is_found(top: str, tmp_path: Path) -> None:
    for room in ("core", *ROOMS):
        shutil.copytree(CORE.parent / room, tmp_path / room)
    bottom, files = CORE_FLOORS[-1], in_core(tmp_path / "core")
    plant(files[top], files[bottom])
    assert upward(files, CORE_FLOORS) == [f"{bottom} -> {top}: at_the_top"]
