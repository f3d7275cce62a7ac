"""Transports of third parties: installed beside an unchanged pscompy, they are selected if they
are best.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.program import program

EXAMPLES = Path(__file__).parents[2] / "examples"


def pass_around() -> None:
    import hashlib

    from pscompy import World

    with World() as world:
        right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        for nbytes in (0, 1, 8, 1000, 65463, 65464, 65465, 300_000, (4 << 20) + 3):
            message = hashlib.shake_128(b"%d" % world.rank).digest(nbytes)
            request = world.isend(message, dest=right, tag=nbytes)
            came = world.recv(source=left, tag=nbytes, timeout=60)
            assert came == hashlib.shake_128(b"%d" % left).digest(nbytes), nbytes
            request.wait(timeout=60)
        print(world[right].transport, flush=True)


TRANSPORTS = ("packets", "stream")


@pytest.fixture
def ring(environment):
    def run(ranks, **variables):
        command = ("-m", "pscompy", "run", "-n", ranks, "-c", program(pass_around))
        return environment.run(*command, **variables).split()

    return run


@pytest.mark.parametrize("name", TRANSPORTS)
def test_wins_by_the_users_priority(ring, name):
    assert ring(3, **{name.upper(): "2"}) == [name] * 3


def test_wins_by_its_own_priority(ring):
    assert ring(2, SHM="0") == ["packets"] * 2
    assert ring(2, SHM="0", PACKETS="0") == ["stream"] * 2


def test_stands_back_for_a_higher_priority(ring):
    assert ring(2) == ["shm"] * 2


def test_info_describes_them(environment):
    info = json.loads(environment.run("-m", "pscompy", "info", "--json"))
    found = {transport["name"]: transport for transport in info["transports"]}
    for name in TRANSPORTS:
        assert found[name]["available"], found[name]
    names = {variable["name"] for variable in info["variables"]}
    assert {"PSP_PACKETS", "PSP_PACKETS_BACKLOG", "PSP_STREAM"} <= names


def test_a_bad_setting_is_refused_by_name(environment):
    code = "import pscompy\ntry: pscompy.Session()\nexcept pscompy.ConfigError as e: print(e)"
    assert "PSP_PACKETS_BACKLOG" in environment.run("-c", code, PACKETS_BACKLOG="none")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("example", ["transport_python", "transport_c"])
def test_the_commands_of_the_readme(environment, example, tmp_path):
    """The commands are run in the source folder, as they stand. The last one runs the conformance
    suite."""
    folder = tmp_path / example
    shutil.copytree(EXAMPLES / example, folder)
    (commands,) = re.findall(r"^```\n(.*?)^```", (folder / "README.md").read_text(), re.M | re.S)
    output = environment.execute(["sh", "-ec", commands], folder)
    assert " passed" in output
    assert "failed" not in output
