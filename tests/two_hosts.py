"""Two hosts for a test: network namespaces, and processes in them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pscompy
from tests.names import A_KEY

ROOT = str(Path(pscompy.__file__).parents[1])


class Namespaces:
    """Namespaces with these names, which a subclass makes; `close` removes them, and kills the
    processes that were started in them."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self._started: list[subprocess.Popen[str]] = []

    def start(self, name: str, text: str, **env: object) -> subprocess.Popen[str]:
        """Start a program in a namespace; it inherits no PSP_ variables."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PSP_")}
        own = {"PYTHONPATH": ROOT, "PSP_KEY": A_KEY} | {k: str(v) for k, v in env.items()}
        process = subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-c", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=kept | own,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
