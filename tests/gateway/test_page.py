"""docs/gateway.md: its commands as they stand, with the user's own key."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from namespaces import Machine, finished

PAGE = Path(__file__).parents[2] / "docs/gateway.md"
HEAT = """
import pscompy

with pscompy.World() as world:
    world.barrier()
    peer = world[(world.rank + 2) % 4]
    peer.send(b"hello")
    assert peer.recv() == b"hello"
    print(world.rank, world.size, world.module, peer.transport)
"""


def commands(prompt: str) -> str:
    """The page's commands behind this prompt, as one script."""
    found = re.findall(rf"^{re.escape(prompt)} (.*)$", PAGE.read_text(), re.M)
    assert found
    return "\n".join(found)


def test_one_world_out_of_two_jobs(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "heat.py").write_text(HEAT)
    scripts = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def start(space: str, prompt: str) -> subprocess.Popen[str]:
        script = f"cd {tmp_path}; unset PSP_KEY\n{commands(prompt)}"
        return machine.start(space, "sh", "-ec", script, PATH=scripts, HOME=tmp_path)

    gateway = start(machine.gateway(1), "$")
    assert gateway.stdout is not None
    assert "serves" in gateway.stdout.readline()
    jobs = [start(machine.module(1), "cluster$"), start(machine.module(2), "booster$")]
    told = sorted(line for job in jobs for line in finished(job)[0].splitlines())
    assert told == [f"{rank} 4 {1 + rank // 2} gateway" for rank in range(4)]
