"""The rules of ARCHITECTURE.md: the permitted dependencies, and the completeness of the
documents.

A rule is a row of RULES: the files it holds for, a pattern that must not occur in them, and the
reason. A line that breaks a rule is reported with file, line and text. Every rule has a planted
leak that it must find.
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import pscompy
from pscompy.config.variables import VARIABLES

ROOT = Path(__file__).parents[1]
PLUGINS = sorted(path.parent.name for path in (ROOT / "pscompy/plugins").glob("*/build.py"))
TRANSPORT = "|".join([*PLUGINS, "portals", "ib", "gateway"])
FABRICS = r"infiniband/|rdma/|portals4|ucp/|psm2?\.h|ofi|sys/socket\.h|netinet/"

pytestmark = pytest.mark.skipif(
    Path(pscompy.get_include()) != ROOT or not (ROOT / "ARCHITECTURE.md").exists(),
    reason="pscompy is installed without its source folder",
)


class Rule(NamedTuple):
    """`where` and `but` are patterns of paths, `leak` is a pattern of text within a line."""

    why: str
    where: tuple[str, ...]
    leak: str
    planted: tuple[str, str]  # a file and a line that breaks the rule
    but: tuple[str, ...] = ()


class Leak(NamedTuple):
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def imports(*modules: str) -> str:
    """A pattern for lines that import one of these modules, or a name from one of them."""
    names = "|".join(re.escape(module) for module in modules)
    parents = "|".join(
        rf"{re.escape(parent)}\s+import\s.*\b{re.escape(name)}\b"
        for parent, _, name in (module.rpartition(".") for module in modules)
        if parent
    )
    alternatives = rf"import\s+({names})\b|from\s+({names})(\.|\s)"
    return rf"^\s*({alternatives}|from\s+({parents}))" if parents else rf"^\s*({alternatives})"


SERVICES = imports("pscompy.world", "pscompy.launch", "pscompy.cli")
PUBLIC = imports("pscompy.api")
CORE_C = ("pscompy/core/*.[ch]", "pscompy/core/**/*.[ch]")
ALL_C = ("pscompy/**/*.[ch]",)
ALL_PYTHON = ("pscompy/**/*.py",)
GENERATED = ("**/_core.c", "**/_native.c")

# The control plane, from the bottom to the top: a module imports only modules of lower rows.
CONTROL = (
    ("descriptors", "addresses", "core_log", "handshake"),
    ("event_loop", "selection", "name_table"),
    ("precon", "explain", "lane"),
    ("dialer", "admission", "transports"),
    ("worker",),
    ("progress",),
    ("candidates",),
    ("negotiation",),
    ("attempt",),
    ("peer",),
    ("links", "connections", "listening"),
    ("dialing", "loopback", "neighbours"),
    ("ondemand",),
    ("manager",),
)


def control_rules() -> Iterator[Rule]:
    for floor, modules in enumerate(CONTROL[:-1]):
        for module in modules:
            above = [it for other in CONTROL[floor:] for it in other if it != module]
            file = "handshake/frames.py" if module == "handshake" else f"{module}.py"
            yield Rule(
                f"{module} of the control plane imports what stands below it",
                (f"pscompy/control/{module}.py", f"pscompy/control/{module}/*.py"),
                imports(*(f"pscompy.control.{it}" for it in above)),
                (f"pscompy/control/{file}", f"from pscompy.control.{above[-1]} import anything"),
            )


RULES = (
    Rule(
        "no transport's name in the core",
        CORE_C,
        rf'"({TRANSPORT})"|\b({TRANSPORT})_transport\b',
        ("pscompy/core/lane.c", 'if (strcmp(name, "shm") == 0)'),
        but=GENERATED,
    ),
    Rule(
        "no transport's name in the control plane or the public API",
        ("pscompy/control/**/*.py", "pscompy/api/*.py", "pscompy/*.py"),
        rf"[\"']({TRANSPORT})[\"'](?!.*(\"\"\"|#))",
        ("pscompy/control/candidates.py", 'if option.name == "tcp":'),
        but=("pscompy/plugin.py", "pscompy/control/peer.py", "pscompy/api/connection.py"),
    ),
    Rule(
        "the core and the binding include no plug-in",
        (*CORE_C, "pscompy/binding/*.[ch]"),
        r"#\s*include\s.*(plugins|gateway)",
        ("pscompy/binding/op.c", '#include "pscompy/plugins/shm/shm.h"'),
    ),
    Rule(
        "the core reaches the protocols through upward.h",
        ("pscompy/core/*.[ch]", "pscompy/core/[!p]*/*.[ch]", "pscompy/core/progress/*.[ch]"),
        r"#\s*include\s.*proto/",
        ("pscompy/core/conn.c", '#include "proto/match.h"'),
        # these files are above the protocols
        but=("pscompy/core/api_*.c", "pscompy/core/lifetime.c"),
    ),
    Rule(
        "one place knows the size of a page",
        ("pscompy/**/*.[ch]", "gateway/**/*.[ch]"),
        r"_SC_PAGE_?SIZE|getpagesize|PAGE_MASK|(SEGMENT|MAP)_PAGE\s+4096",
        ("pscompy/plugins/shm/map.c", "#define SHM_MAP_PAGE 4096u"),
        but=("pscompy/transport/kit/page.h", *GENERATED),
    ),
    Rule(
        "no fabric's header outside its plug-in",
        (*CORE_C, "pscompy/binding/*.[ch]"),
        rf"#\s*include\s*[<\"]({FABRICS})",
        ("pscompy/core/proto/rma.c", "#include <infiniband/verbs.h>"),
    ),
    Rule(
        "the core knows nothing of Python or of the binding",
        CORE_C,
        r"#\s*include\s.*(Python\.h|binding)",
        ("pscompy/core/progress/wait.c", "#include <Python.h>"),
        but=GENERATED,
    ),
    Rule(
        "the binding includes what the core gives away",
        ("pscompy/binding/*.[ch]",),
        r"#\s*include\s.*core/(?!api\.h|control\.h)",
        ("pscompy/binding/communicator.c", '#include "../core/conn.h"'),
    ),
    Rule(
        "the binding calls the core through psc_api_t only",
        ("pscompy/binding/*.[ch]",),
        r"\bpsc_(worker|conn|lane|match|rndv)_\w+\(",
        ("pscompy/binding/op.c", "    psc_worker_progress(self->core);"),
    ),
    Rule(
        "a plug-in includes the contract and its kit, nothing else of pscompy",
        ("pscompy/plugins/**/*.[ch]",),
        r"#\s*include\s.*(pscompy|\.\.)/(?!transport/transport\.h|transport/kit/|softni/|wire\.h)",
        ("pscompy/plugins/tcp/send.c", '#include "pscompy/core/conn.h"'),
    ),
    Rule(
        "a plug-in imports pscompy.plugin, nothing else of pscompy",
        ("pscompy/plugins/*/*.py",),
        r"^\s*(from|import)\s+pscompy(?!\.plugin\b|\.plugins\.)",
        ("pscompy/plugins/shm/config.py", "from pscompy.config.config import Config"),
    ),
    *(
        Rule(
            f"{name} knows no other plug-in",
            (f"pscompy/plugins/{name}/*.py",),
            rf"^\s*(from|import)\s+pscompy\.plugins\.(?!{name}\b)",
            (f"pscompy/plugins/{name}/build.py", "import pscompy.plugins.other.config"),
        )
        for name in PLUGINS
    ),
    Rule(
        "pscompy.core is the only importer of the generated module",
        ALL_PYTHON,
        r"^\s*(from|import)\s.*\b_core\b",
        ("pscompy/api/session.py", "from pscompy.core._core import lib"),
        but=("pscompy/core/__init__.py",),
    ),
    Rule(
        "the environment is for the configuration, and for what starts processes",
        ALL_PYTHON,
        r"\bos\.(environ|getenv)\b|^\s*from os import .*\b(environ|getenv)\b",
        ("pscompy/control/handshake/keys.py", "    if os.environ.get('PSP_KEY'):"),
        but=(
            "pscompy/config/config.py",
            "pscompy/launch/environment.py",
            "pscompy/testing/process.py",
        ),
    ),
    Rule(
        "no getenv in C",
        ALL_C,
        r"\bgetenv\b",
        ("pscompy/plugins/shm/listen.c", '    const char *s = getenv("TMPDIR");'),
    ),
    Rule(
        "the control plane knows neither the public API nor the services",
        ("pscompy/control/**/*.py",),
        f"{PUBLIC}|{SERVICES}",
        ("pscompy/control/worker.py", "    from pscompy.api.session import Session"),
    ),
    Rule(
        "nobody writes into the control plane from outside",
        tuple(f"pscompy/{it}/**/*.py" for it in ("api", "binding", "cli", "parcel", "world")),
        r"\b_(control|engine|record)\.[\w.]+(\[.*\])?\s*=[^=]",
        ("pscompy/world/world.py", "        self._control.services[context] = self._own_service"),
    ),
    *control_rules(),
    Rule(
        "the public API knows no service",
        ("pscompy/api/*.py",),
        SERVICES,
        ("pscompy/api/listener.py", "from pscompy import world"),
    ),
    Rule(
        "parcels know messages and requests, and nothing that is built on objects",
        ("pscompy/parcel/*.py",),
        imports(*(f"pscompy.api.{it}" for it in ("session", "listener", "connection")))
        + rf"|{SERVICES}|^\s*(from|import)\s+pscompy\.control\b",
        ("pscompy/parcel/objects.py", "from pscompy.api.connection import Connection"),
        but=("pscompy/parcel/executor.py",),  # the executor works over a World
    ),
    Rule(
        "configuration and errors stand on nothing",
        ("pscompy/config/*.py", "pscompy/errors.py"),
        r"^\s*(from|import)\s+pscompy(?!\.(config|errors)\b|\s+import __version__)",
        ("pscompy/config/config.py", "from pscompy.discovery.registry import load"),
    ),
    Rule(
        "the contract's room and the face of plug-ins stand on configuration and errors",
        ("pscompy/plugin.py", "pscompy/transport/**/*.py"),
        r"^\s*(from|import)\s+pscompy(?!\.(config|errors|plugin|transport)\b)",
        ("pscompy/plugin.py", "    from pscompy.discovery.registry import load"),
    ),
    Rule(
        "discovery stands on the contract's room, configuration and errors",
        ("pscompy/discovery/*.py",),
        r"^\s*(from|import)\s+pscompy(?!\.(config|discovery|errors|transport)\b)",
        ("pscompy/discovery/registry.py", "from pscompy.plugin import Transport"),
    ),
    Rule(
        "the face of plug-ins is for plug-ins",
        ALL_PYTHON,
        imports("pscompy.plugin"),
        ("pscompy/control/worker.py", "from pscompy.plugin import Carrier"),
        but=("pscompy/plugins/**/*.py", "pscompy/testing/*.py", "pscompy/plugin.py"),
    ),
    Rule(
        "the model of endpoints stands on nothing",
        ("pscompy/endpoints/*.py",),
        r"^\s*(from|import)\s+pscompy(?!\.endpoints\b)",
        ("pscompy/endpoints/plot.py", "from pscompy.cli.plot import check"),
    ),
    Rule(
        "the gateway imports what is public",
        ("gateway/**/*.py",),
        r"^\s*(from|import)\s+pscompy(?!_gateway)"
        r"(?!\.(plugin|capi|errors|discovery\.registry|world\.bootstrap\.join)\b"
        r"|\.config(\.parsers| import parsers)"
        r"|\s+import\s+(?!_)|$)",
        (
            "gateway/pscompy_gateway/transport/agent.py",
            "    from pscompy.control.addresses import interfaces",
        ),
    ),
    Rule(
        "the gateway touches nothing private but its own",
        ("gateway/**/*.py",),
        r"(\b(?!self\b|cls\b)[a-z_]\w*|[)\]])\._[a-z]",
        ("gateway/pscompy_gateway/daemon/daemon.py", "    worker = self._fabric._binding.address"),
        but=("gateway/pscompy_gateway/build.py",),  # the file contains the name of its own module
    ),
    Rule(
        "the gateway's C includes the contract with its kit, and psc_api_t",
        ("gateway/**/*.[ch]",),
        r"#\s*include\s.*(pscompy|\.\.)/(?!transport/(transport\.h|kit/)|core/api\.h|wire\.h)",
        ("gateway/pscompy_gateway/daemon/hub.h", '#include "pscompy/core/control.h"'),
        but=("gateway/pscompy_gateway/_native.c",),
    ),
    Rule(
        "no gateway inside pscompy",
        ALL_PYTHON,
        r"^\s*(from|import)\s+(pscompy_)?gateway\b",
        ("pscompy/discovery/registry.py", "import pscompy_gateway"),
    ),
)


def scan(root: Path, rule: Rule) -> Iterator[Leak]:
    """The lines below `root` that break the rule."""
    left_out = {path for pattern in rule.but for path in root.glob(pattern)}
    files = {path for pattern in rule.where for path in root.glob(pattern)} - left_out
    for path in sorted(files):
        for number, text in enumerate(path.read_text().splitlines(), 1):
            if re.search(rule.leak, text):
                yield Leak(path.relative_to(root).as_posix(), number, text)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.why)
def test_rule(rule: Rule) -> None:
    leaks = list(scan(ROOT, rule))
    assert not leaks, "\n".join([f"{rule.why}:", *map(str, leaks)])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.why)
def test_rule_finds_a_planted_leak(rule: Rule, tmp_path: Path) -> None:
    name, line = rule.planted
    copy = tmp_path / name
    copy.parent.mkdir(parents=True)
    text = (ROOT / name).read_text()
    copy.write_text(f"{text}{line}\n")
    assert list(scan(tmp_path, rule)) == [Leak(name, len(text.splitlines()) + 1, line)]


def test_every_module_of_the_control_plane_has_its_place() -> None:
    paths = {path.stem for path in (ROOT / "pscompy/control").iterdir() if path.name[0] != "_"}
    assert paths == {module for floor in CONTROL for module in floor}


# ---- the order of files within a folder ----------------------------------------

# C files from the top down; a file calls only functions of files further down.
FLOORS = {
    "pscompy/plugins/loop": ("transport", "receive", "send", "ep", "memory", "sleep"),
    "pscompy/plugins/ib": (
        *("transport", "sleep", "settings", "receive", "complete", "connect", "ep", "memory"),
        *("recover", "send", "ring", "post", "window", "cache", "proof", "queue", "device"),
        "select_device",
    ),
    "pscompy/plugins/portals": (
        *("transport", "settings", "receive", "connect", "match", "memory", "sleep", "ep", "send"),
    ),
    "pscompy/plugins/portals/psptl": (
        *("device", "event", "channel", "match", "deliver", "deferred", "source", "receive"),
        *("tag", "rma", "send", "region", "backlog", "failure", "fence", "provider"),
    ),
    "pscompy/plugins/portals/softni": (
        *("library", "interface", "thread", "api_wait", "progress", "receive", "handshake"),
        *("api_move", "life", "target", "send", "frame", "hello", "wire", "peer", "operation"),
        *("api_entry", "api_table", "match", "entry", "table", "list", "counter", "queue"),
        *("fault_injection", "wakeup", "pool", "region"),
    ),
    "pscompy/plugins/shm": (
        *("transport", "settings", "listen", "connect", "trial", "ep", "offer", "receive", "map"),
        *("memory", "share", "cma", "send", "sleep", "state", "link", "active", "source", "board"),
        *("ring",),
    ),
    "pscompy/plugins/tcp": (
        *("transport", "listen", "connect", "dial", "ep", "receive", "send", "stage", "sleep"),
        *("network", "address", "settings"),
    ),
    "pscompy/transport/python": ("pump", "transport", "ep", "queue", "proof"),
}
DEFINITION = re.compile(r"^(?!static\b)[a-z_][\w *]*?\b(\w+)\([^;{]*\)\n\{", re.M)


def upward(folder: Path, floors: tuple[str, ...]) -> list[str]:
    """The functions that a file of this folder calls although their file is not further down."""
    files = [path for path in folder.glob("*.c") if path.name != "_native.c"]
    code = {path.stem: re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S) for path in files}
    assert sorted(code) == sorted(floors)
    homes = {name: stem for stem, text in code.items() for name in DEFINITION.findall(text)}
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
    "api control wire counters descriptor pieces iface_check",
    "types/request completion request notices",
    "types/am types/ends types/flow types/interfaces types/matching types/memory types/sleeper",
    "types/work types/worker types/lane types/conn",
    "lane_early upward progress/pace progress/spin progress/follow progress/sleep",
    "memory/segment memory/blocks",
    "worker worker_control finish conn_queue",
    "memory/pool memory/access lane conn conn_flush lane_upcalls",
    "progress/progress progress/sleeper progress/thread progress/wait iface conn_control",
    "proto/credit proto/stripe proto/am_node proto/tag_post proto/match_list proto/match_queue",
    "proto/match proto/describe",
    "proto/am proto/eager proto/region proto/rndv_keys proto/rndv",
    "proto/rndv_direct proto/rndv_am proto/rndv_fin",
    "proto/am_offer proto/tag_send proto/tag",
    "proto/lend proto/rma proto/rndv_rts",
    "proto/message proto/giveback proto/am_post",
    "proto/proto proto/protocols",
    "api_table api_message api_memory lifetime",
)
CORE_FLOORS = [unit for floor in CORE_ROWS for unit in floor.split()]
CORE = ROOT / "pscompy/core"
# Headers whose functions several files implement: api_*.c, and those that the control plane calls.
WITHOUT_A_HEADER = {
    *("api_message", "api_memory", "conn_control", "lifetime", "proto/describe", "worker_control")
}


def unit_of(path: Path, core: Path) -> str:
    return path.resolve().relative_to(core.resolve()).with_suffix("").as_posix()


def upward_includes(core: Path) -> Iterator[str]:
    """Every include of the core that does not lead to a lower file."""
    place = {unit: number for number, unit in enumerate(CORE_FLOORS)}
    for path in sorted(core.rglob("*.[ch]")):
        if path.name == "_core.c":
            continue
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
    [("request.c", "finish.h"), ("proto/match.h", "message.h"), ("lane.h", "conn.h")],
)
def test_an_include_upward_is_seen(name: str, include: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#include "{include}"\n')
    other = (Path(name).parent / include).with_suffix("").as_posix()
    assert list(upward_includes(tmp_path)) == [f"{name[:-2]} includes {other}"]


def test_every_file_of_the_core_has_a_floor_and_a_header() -> None:
    files = [path for path in CORE.rglob("*.[ch]") if path.name != "_core.c"]
    assert sorted({unit_of(path, CORE) for path in files}) == sorted(CORE_FLOORS)
    bare = {
        unit_of(it, CORE) for it in files if it.suffix == ".c" and not it.with_suffix(".h").exists()
    }
    assert bare == WITHOUT_A_HEADER


# ---- the documents are complete ------------------------------------------------


def calls_of_the_contract() -> list[str]:
    header = (ROOT / "pscompy/transport/transport.h").read_text()
    struct = re.search(r"^struct psc_transport_ops \{(.*?)^\};", header, re.M | re.S)
    assert struct
    code = re.sub(r"/\*.*?\*/", "", struct[1], flags=re.S)
    return re.findall(r"\(\*(\w+)\)\(", code)


def test_architecture_names_every_call_of_the_contract() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    named = set(re.findall(r"\w+", " ".join(rows)))
    calls = calls_of_the_contract()
    assert len(calls) > 25
    assert [call for call in calls if call not in named] == []


# ---- a variable that nothing reads must go --------------------------------------


def texts(*patterns: str) -> str:
    paths = {path for pattern in patterns for path in ROOT.glob(pattern)}
    return "\n".join(path.read_text() for path in sorted(paths))


def test_every_variable_of_the_core_is_read() -> None:
    code = texts(
        "pscompy/*.py",
        "pscompy/config/[!v]*.py",
        *(f"pscompy/{it}/**/*.py" for it in ("api", "control", "discovery", "parcel", "world")),
    )
    assert [var.name for var in VARIABLES if f'"{var.name}"' not in code] == []


@pytest.mark.parametrize("name", PLUGINS)
def test_every_variable_of_a_transport_is_read(name: str) -> None:
    module = importlib.import_module(f"pscompy.plugins.{name}.config")
    code = texts(f"pscompy/plugins/{name}/*.c")
    unread = [var.name for var in module.VARIABLES if f'"{var.name}"' not in code]
    assert unread in ([], ["RENDEZVOUS"])  # the control plane reads RENDEZVOUS for all transports


# ---- no paths of a particular machine ------------------------------------------

HOMES = re.compile(r"""(?<![\w.$}~/:*"-])/(home|root|Users|opt|mnt|srv)/[\w.-]""")


def tracked_texts() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in path.read_bytes():
            yield path


@pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="not a git checkout"
)
def test_no_absolute_paths() -> None:
    leaks = [
        Leak(path.relative_to(ROOT).as_posix(), number, text)
        for path in tracked_texts()
        for number, text in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if f"{ROOT}/" in text or HOMES.search(text)
    ]
    assert not leaks, "\n".join(map(str, leaks))


def test_an_absolute_path_is_seen() -> None:
    assert HOMES.search("cd /" + "home/somebody/pscompy")
    assert not HOMES.search("https://example.org/home/page, $HOME/.config, ~/opt/x")
