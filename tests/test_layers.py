"""The rules of ARCHITECTURE.md: the permitted dependencies, and the completeness of the
documents.

A rule is a row of RULES: the files it holds for, a pattern that must not occur in them, and the
reason. A line that breaks a rule is reported with file, line and text. Every rule has a planted
leak that it must find.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import pscompy

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
NO_GUARD = r"^(?!from pscompy\.api\.c\.guard import)"
CORE_C = ("pscompy/core/*.[ch]", "pscompy/core/**/*.[ch]", "pscompy/proto/*.[ch]")
CORE_C += ("pscompy/coll/*.[ch]",)
ALL_C = ("pscompy/**/*.[ch]",)
ALL_PYTHON = ("pscompy/**/*.py",)
ALL_MPI = ("mpi/**/*.py",)
ALL_MPI_C = ("mpi/**/*.[ch]",)
GENERATED = ("**/_core.c", "**/_native.c")

# The control plane, from the bottom to the top: a module imports only modules of lower rows.
CONTROL = (
    ("descriptors", "addresses", "core_log", "handshake", "precon_options"),
    ("event_loop", "selection", "phases"),
    ("rail_set",),
    ("precon", "explain", "lane", "datagrams", "sibling"),
    ("dialer", "admission", "transports", "conn"),
    ("worker",),
    ("progress",),
    ("factory",),
    ("candidates",),
    ("repair",),
    ("negotiation",),
    ("peer",),
    ("ended_ranks", "tuning"),
    ("precons", "connections", "listening"),
    ("dialing", "loopback", "node_connect"),
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
        (*CORE_C, "pscompy/api/c/*.[ch]"),
        r"#\s*include\s.*(plugins|gateway)",
        ("pscompy/api/c/operation.c", '#include "pscompy/plugins/shm/shm.h"'),
    ),
    Rule(
        "the core reaches the protocols through upward.h",
        ("pscompy/core/**/*.[ch]",),
        r"#\s*include\s.*proto/",
        ("pscompy/core/conn.c", '#include "../proto/match.h"'),
        # these files are above the protocols
        but=("pscompy/core/api_*.c", "pscompy/core/lifetime.c"),
    ),
    Rule(
        "the core and the protocols know nothing of the collectives",
        ("pscompy/core/**/*.[ch]", "pscompy/proto/*.[ch]"),
        r"#\s*include\s.*coll/",
        ("pscompy/proto/send.c", '#include "../coll/reduce.h"'),
        # these files are above the collectives
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
        (*CORE_C, "pscompy/api/c/*.[ch]"),
        rf"#\s*include\s*[<\"]({FABRICS})",
        ("pscompy/proto/rma.c", "#include <infiniband/verbs.h>"),
    ),
    Rule(
        "the core knows nothing of Python or of the binding",
        CORE_C,
        r"#\s*include\s.*(Python\.h|api/c/)",
        ("pscompy/core/progress/wait.c", "#include <Python.h>"),
        but=GENERATED,
    ),
    Rule(
        "the binding includes what the core gives away",
        ("pscompy/api/c/*.[ch]",),
        r"#\s*include\s.*core/(?!api\.h|control\.h)",
        ("pscompy/api/c/communicator.c", '#include "../../core/conn.h"'),
    ),
    Rule(
        "the binding calls the core through psc_api_t only",
        ("pscompy/api/c/*.[ch]",),
        r"\bpsc_(worker|conn|lane|match|rndv)_\w+\(",
        ("pscompy/api/c/operation.c", "    psc_worker_progress(self->core);"),
    ),
    Rule(
        "a plug-in includes the contract and its kit, nothing else of pscompy",
        ("pscompy/plugins/**/*.[ch]",),
        r"#\s*include\s.*(pscompy|\.\.)/(?!transport/transport\.h|transport/kit/|softni/|wire\.h)",
        ("pscompy/plugins/tcp/send.c", '#include "pscompy/core/conn.h"'),
    ),
    Rule(
        "the software NI of Portals 4 includes the kit, nothing else of pscompy",
        ("softni/**/*.[ch]",),
        r"#\s*include\s.*pscompy/(?!transport/kit/)",
        ("softni/pscompy_softni/send.c", '#include "pscompy/plugins/portals/portals.h"'),
    ),
    Rule(
        "a plug-in imports pscompy.plugin, nothing else of pscompy",
        ("pscompy/plugins/*/*.py",),
        r"^\s*(from|import)\s+pscompy(?!\.plugin\b|\.plugins\.|_softni\b)",
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
        # the extension is a folder of the API, but its locks are for all rooms
        f"{PUBLIC.replace('^', NO_GUARD, 1)}|{SERVICES}",
        ("pscompy/control/worker.py", "    from pscompy.api.session import Session"),
    ),
    Rule(
        "nobody writes into the control plane from outside",
        tuple(f"pscompy/{it}/**/*.py" for it in ("api", "cli", "parcel", "world")),
        r"\b_(control|core|record)\.[\w.]+(\[.*\])?\s*=[^=]",
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
        "the public API knows parcels by their door",
        ("pscompy/api/*.py",),
        r"^\s*(from|import)\s+pscompy\.parcel\b(?!\.door\b| import door\b)",
        ("pscompy/api/connection.py", "        from pscompy.parcel.objects import Objects"),
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
        ("pscompy/cli/endpoint_model/*.py",),
        r"^\s*(from|import)\s+pscompy(?!\.cli\.endpoint_model\b)",
        ("pscompy/cli/endpoint_model/plot.py", "from pscompy.cli.plot import check"),
        but=("pscompy/cli/endpoint_model/command.py",),
    ),
    Rule(
        "the gateway imports what is public",
        ("gateway/**/*.py",),
        r"^\s*(from|import)\s+pscompy(?!_gateway)"
        r"(?!\.(plugin|capi|errors|discovery\.registry|world\.bootstrap\.join)\b"
        r"|\.config(\.parsers|\.standard_files| import parsers)"
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
    Rule(
        "pscompy knows its MPI by a few doors",
        ALL_PYTHON,
        imports("pscompy_mpi"),
        ("pscompy/world/world.py", "    from pscompy_mpi import host"),
        but=("pscompy/mpi.py", "pscompy/launch/environment.py", "pscompy/cli/info.py"),
    ),
    Rule(
        "MPI imports what is public, and capi",
        ALL_MPI,
        r"^\s*(from|import)\s+pscompy(?!_mpi)(?!\.(capi|errors)\b|\s+import\s+(?!_(?!_version))|$)",
        ("mpi/pscompy_mpi/host.py", "from pscompy.world.bootstrap import attach"),
    ),
    Rule(
        "MPI touches nothing private but its own",
        ALL_MPI,
        r"(\b(?!self\b|cls\b)[a-z_]\w*|[)\]])\._(?!replace\b|asdict\b)[a-z]",
        ("mpi/pscompy_mpi/communicators.py", "    number = inner._context.number"),
    ),
    Rule(
        "MPI_Init, which the import of mpi4py calls, does not look at mpi4py",
        ALL_MPI,
        r"^\s*(from|import)\s+mpi4py\b|modules\W+mpi4py",
        ("mpi/pscompy_mpi/host.py", '    mpi = sys.modules["mpi4py"]'),
        but=("mpi/pscompy_mpi/inquiry.py",),  # which has another process import it
    ),
    Rule(
        "MPI's C includes psc_api_t, and nothing else of pscompy",
        ALL_MPI_C,
        r"#\s*include\s.*(pscompy/(?!core/api\.h)|\.\./)",
        ("mpi/pscompy_mpi/src/wait.c", '#include "pscompy/core/control.h"'),
    ),
    Rule(
        "libmpi.so.12 knows nothing of Python, but its host does",
        ALL_MPI_C,
        r"#\s*include\s.*Python\.h",
        ("mpi/pscompy_mpi/src/environment.c", "#include <Python.h>"),
        but=("mpi/pscompy_mpi/src/host*.[ch]",),
    ),
    Rule(
        "MPI reads in C only those variables of the environment that bring Python",
        ALL_MPI_C,
        r"\bgetenv\b",
        ("mpi/pscompy_mpi/src/probe.c", '    const char *s = getenv("PSP_SPIN_US");'),
        but=("mpi/pscompy_mpi/src/interpreter.c",),
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
