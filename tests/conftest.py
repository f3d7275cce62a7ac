"""Settings for all tests."""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pscompy.testing.base import Base
from pscompy.testing.process import Far
from tests import by_value, forked
from tests.compiler import Compiler
from tests.jobs import Launcher
from tests.left_out import ALL, left_out
from tests.program import program

# A shell without job control starts background programs with SIGINT and SIGQUIT ignored, and their
# children inherit that. Tests that send these signals need the usual handlers.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

Far.dumps = by_value.dumps  # far processes call functions and lambdas of the tests, too
Far.begun = forked.begun

# A megabyte there and back takes half a second in a guest of ib, on a busy machine.
Base.large = int(os.environ.get("PSCOMPY_TEST_LARGE", 12 << 20)) + 5

# The longest tests begin first, so that no process of a run works on it when others have ended.
LONGEST = ("tests/ib/test_conformance", "tests/ib/test_suites", "tests/session/test_cut_rails")
LONGEST += ("tests/bench/", "tests/core/", "tests/examples/", "tests/ib/", "tests/docs/")
LONGEST += (
    "tests/session/test_flood",
    "tests/contract/",
    "tests/portals/",
    "tests/gateway/test_failover",
    "tests/gateway/",
)
LONGEST += ("tests/conformance/", "tests/package/", "tests/parcel/", "tests/launch/")
LONGEST += ("tests/session/", "tests/proto/", "tests/control/")


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("hypothesispytest"):  # not in the guests of ib
        load_settings_of_hypothesis()


def load_settings_of_hypothesis() -> None:
    """No assertion may depend on the speed of the machine, and every run uses the same examples."""
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "pscompy",
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("pscompy")


def begins(item: pytest.Item) -> int:
    """Where among LONGEST the test's file stands."""
    found = (place for place, it in enumerate(LONGEST) if item.nodeid.startswith(it))
    return next(found, len(LONGEST))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=begins)
    if not ALL and not any("::" in it for it in config.args):
        without = dict.fromkeys(left_out(items))
        config.hook.pytest_deselected(items=list(without))
        items[:] = [item for item in items if item not in without]


def pytest_collection_finish() -> None:
    """The garbage collector need not look at the tests themselves each time it runs."""
    gc.collect()
    gc.freeze()


# Newer Pythons warn of forks beside threads, which is what some tests are about.
os.environ.setdefault("PYTHONWARNINGS", "ignore:This process:DeprecationWarning")
# numpy starts no threads of its own in the thousand processes of the tests that import it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests look up names that do not exist; limit the wait if the name server cannot be reached.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
def run() -> Iterator[Launcher]:
    """Runs jobs by `pscompy run`."""
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """Returns a function that writes a function of the test, with its arguments, as a program and
    returns the program's path."""

    def write(main: Callable[..., object], *arguments: object, **keywords: object) -> Path:
        path = tmp_path / f"{main.__name__}.py"
        whole = path.with_suffix(".new")
        whole.write_text(program(main, *arguments, **keywords))
        return whole.replace(path)  # a rank that starts meanwhile reads a complete program

    return write
