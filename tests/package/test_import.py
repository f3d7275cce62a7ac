"""Importing pscompy is cheap, and each public name is found in its module."""

import subprocess
import sys
from pathlib import Path

import pytest

import pscompy
from pscompy.plugins.ib import DEVICES
from tests.program import program

HEAVY = ("numpy", "asyncio", "pluggy", "importlib.metadata", "cffi", "_cffi_backend", "logging")


def loaded_after(program):
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=pscompy.get_include(),
    )
    return set(ended.stdout.split())


def test_importing_pscompy_loads_next_to_nothing():
    before = loaded_after("")
    after = loaded_after("import pscompy; pscompy.get_include(); dir(pscompy)")
    assert not (after - before) & set(HEAVY)
    assert {name for name in after - before if name.startswith("pscompy")} == {"pscompy"}


def test_a_world_of_a_job_loads_none_of_what_is_slow(site):
    """Modules that are slow to import are loaded only by the code that uses them."""
    program = (
        "import sys; before = {*sys.modules}; import pscompy\n"
        "with pscompy.World() as world: world.barrier()\n"
        "print(*({*sys.modules} - before))"
    )
    ended = site.run("-m", "pscompy", "run", "-n", "2", "-c", program)
    assert ended.returncode == 0, ended.stderr
    slow = {"numpy", "asyncio", "cffi", "unicodedata"}
    for loaded in ended.stdout.splitlines():
        assert "pscompy.world.world" in loaded.split()
        assert slow & {*loaded.split()} == set()


@pytest.mark.skipif(DEVICES.exists(), reason="this machine may have an RDMA device")
def test_the_library_of_verbs_is_not_loaded_without_a_device():
    program = "import pscompy; session = pscompy.Session(); print(open('/proc/self/maps').read())"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "pscompy/core/_core" in ended.stdout
    assert "libibverbs" not in ended.stdout


def test_what_a_plugin_imports_stands_below_sessions_and_discovery():
    after = loaded_after("import pscompy.plugin")
    rooms = {name.split(".")[1] for name in after if name.startswith("pscompy.")}
    assert rooms == {"config", "errors", "plugin", "transport"}


def test_errors_are_had_without_the_rest():
    after = loaded_after("import pscompy; pscompy.PeerLost")
    assert {name for name in after if name.startswith("pscompy")} == {"pscompy", "pscompy.errors"}


def test_the_headers_are_where_get_include_says():
    for name in ("transport/transport.h", "transport/status.h", "core/api.h"):
        assert (Path(pscompy.get_include()) / "pscompy" / name).is_file()


@pytest.mark.parametrize("name", pscompy.__all__)
def test_every_public_name_is_there(name):
    assert getattr(pscompy, name) is not None
    assert name in dir(pscompy)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        pscompy.Sesion  # noqa: B018


def test_the_wildcards():
    assert pscompy.ANY_TAG == -1
    assert pscompy.ANY_SOURCE < -1  # so that `rank - 1` of rank 0 is no wildcard


def import_in_a_sub_interpreter():
    try:
        import _interpreters as interpreters  # Python 3.13
    except ModuleNotFoundError:
        import _xxsubinterpreters as interpreters

    other = interpreters.create()
    try:
        failed = interpreters.run_string(other, "import pscompy; pscompy.Session")
    except interpreters.RunFailedError as error:
        failed = error
    print(failed)


def test_a_sub_interpreter_is_refused_with_the_reason():
    command = [sys.executable, "-c", program(import_in_a_sub_interpreter)]
    where = pscompy.get_include()
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=where)
    # the words are ours, or those of Python 3.14, which refuses the core's module itself
    assert "subinterpreter" in ended.stdout.replace("-", "")
