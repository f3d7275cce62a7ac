"""Modules and gateways in network namespaces; no route leads from one module to another.

Every gateway has a link of its own to every module: 10.MODULE.GATEWAY.0/24, where the module has
.1 and the gateway .9. All names begin with this process's id, and everything is removed after
the test.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pscompy
from tests.names import A_KEY
from tests.program import program
from tests.storm import python_path

ROOT = Path(pscompy.__file__).parents[1]
HERE = Path(__file__).parent  # folder of the modules that ranks import
TIMEOUT = 300  # seconds; a guard against hanging on machines of any speed
PORT = 4470

_numbers = itertools.count()


@cache
def why_no_namespaces() -> str:
    """The reason why namespaces and links between them cannot be made; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"psc{os.getpid()}try"
    with contextlib.suppress(OSError):
        for command in (
            f"ip netns add {name}",
            f"ip -n {name} link add veth1 type veth peer name veth2",
            f"ip netns exec {name} true",
        ):
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
                return f"no network namespaces here: {command}: {done.stderr.strip()}"
        subprocess.run(["ip", "netns", "del", name], check=True)
        return ""
    return "no network namespaces here: there is no `ip`"


def ip(*words: object) -> None:
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True)


def asks() -> None:
    """Print the status of each gateway whose address is read, and an empty line."""
    from pscompy_gateway.cli.command import main

    for address in sys.stdin:
        main(["status", "--json", address.strip()])
        print(flush=True)


class Machine:
    """`modules` and `gateways` in namespaces, numbered from 1."""

    def __init__(self, modules: int, gateways: int) -> None:
        self.prefix = f"psc{os.getpid()}x{next(_numbers)}"
        self.modules = range(1, modules + 1)
        self.gateways = range(1, gateways + 1)
        self.running: dict[int, subprocess.Popen[str]] = {}
        self._started: list[subprocess.Popen[str]] = []
        self._asking: dict[int, subprocess.Popen[str]] = {}
        self._spaces: list[str] = []

    def open(self) -> None:
        for space in (*map(self.module, self.modules), *map(self.gateway, self.gateways)):
            ip("netns", "add", space)
            self._spaces.append(space)
            ip("-n", space, "link", "set", "lo", "up")
        for module in self.modules:
            for gateway in self.gateways:
                self._link(module, gateway)

    def close(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for space in self._spaces:
            ip("netns", "del", space)

    def module(self, number: int) -> str:
        return f"{self.prefix}m{number}"

    def gateway(self, number: int) -> str:
        return f"{self.prefix}g{number}"

    def _link(self, module: int, gateway: int) -> None:
        net = f"10.{module}.{gateway}"
        ip("-n", self.module(module), "link", "add", f"g{gateway}", "type", "veth", "peer",
           "name", f"m{module}", "netns", self.gateway(gateway))  # fmt: skip
        ends = ((self.module(module), f"g{gateway}", 1), (self.gateway(gateway), f"m{module}", 9))
        for space, device, host in ends:
            ip("-n", space, "addr", "add", f"{net}.{host}/24", "dev", device)
            ip("-n", space, "link", "set", device, "up")

    def link_gateways(self, one: int, other: int) -> None:
        """Link the two gateways by 10.200.0.0/24; each has its number as the last part of its
        address."""
        ip("-n", self.gateway(one), "link", "add", f"to{other}", "type", "veth", "peer",
           "name", f"to{one}", "netns", self.gateway(other))  # fmt: skip
        for here, there in ((one, other), (other, one)):
            ip("-n", self.gateway(here), "addr", "add", f"10.200.0.{here}/24", "dev", f"to{there}")
            ip("-n", self.gateway(here), "link", "set", f"to{there}", "up")

    def limit(self, rate: str) -> None:
        """Limit every link to this rate in each direction ("200mbit")."""
        for module, gateway in itertools.product(self.modules, self.gateways):
            ends = ((self.module(module), f"g{gateway}"), (self.gateway(gateway), f"m{module}"))
            for space, device in ends:
                words = f"tc qdisc add dev {device} root tbf rate {rate} burst 64k latency 50ms"
                subprocess.run(["ip", "netns", "exec", space, *words.split()], check=True)

    # ---- processes ----

    def start(
        self, space: str, *command: object, stdin: int = subprocess.DEVNULL, **env: object
    ) -> subprocess.Popen[str]:
        """Start a process in a namespace; the process and its children are killed after the
        test."""
        foreign = ("PMI", "PSP_", "SLURM_", "OMPI_", "PMIX_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        environ = {**kept, "PYTHONPATH": python_path(ROOT, HERE), "PSP_KEY": A_KEY}
        environ |= {name: str(value) for name, value in env.items()}
        process = subprocess.Popen(
            ["ip", "netns", "exec", space, *map(str, command)],
            text=True,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def start_gateway(
        self,
        number: int,
        *options: object,
        modules: Iterable[int] = (),
        fabrics: Iterable[str] = (),
        prefix: Iterable[object] = (),
        **env: object,
    ) -> subprocess.Popen[str]:
        """Start a gateway; on return it serves `modules` (default: all) over tcp, or `fabrics`."""
        fabrics = fabrics or [f"tcp@10.{it}.{number}.9:{PORT}" for it in modules or self.modules]
        process = self.start(
            self.gateway(number),
            *prefix,
            sys.executable,
            "-m",
            "pscompy_gateway",
            "run",
            *options,
            *fabrics,
            **{"PSP_DEBUG": 1, **env},  # its warnings would fill the pipe that nobody reads
        )
        assert process.stdout is not None
        assert process.stderr is not None
        if "serves" not in process.stdout.readline():
            raise AssertionError(process.stderr.read())
        self.running[number] = process
        return process

    def kill_gateway(self, number: int) -> None:
        process = self.running.pop(number)
        process.kill()
        process.wait(TIMEOUT)

    def servers(self, module: int) -> str:
        """PSP_GW_SERVER for processes of a module."""
        return " ".join(f"10.{module}.{number}.9:{PORT}" for number in self.gateways)

    def python(
        self, module: int, *arguments: object, stdin: int = subprocess.DEVNULL, **env: object
    ) -> subprocess.Popen[str]:
        env = {"PSP_MSA_MODULE_ID": module, "PSP_GW_SERVER": self.servers(module), **env}
        return self.start(self.module(module), sys.executable, *arguments, stdin=stdin, **env)

    def ranks(
        self, module: int, n: int, program: object, *arguments: object, **env: object
    ) -> subprocess.Popen[str]:
        """`pscompy run` in a module of the world "test"."""
        env = {"PSP_JOIN": f"test:{len(self.modules)}", **env}
        return self.python(module, "-m", "pscompy", "run", "-n", n, program, *arguments, **env)

    def status(self, number: int, module: int = 1) -> dict[str, Any]:
        """The status that a gateway reports, as seen from `module`, where one process asks for all
        that a test wants to know."""
        if (asking := self._asking.get(module)) is None:
            asking = self.python(module, "-c", program(asks), stdin=subprocess.PIPE)
            self._asking[module] = asking
        assert asking.stdin is not None
        assert asking.stdout is not None
        print(f"10.{module}.{number}.9:{PORT}", file=asking.stdin, flush=True)
        lines = itertools.takewhile(str.strip, iter(asking.stdout.readline, ""))
        told: dict[str, Any] = json.loads("".join(lines))
        return told


def finished(process: subprocess.Popen[str], timeout: float = TIMEOUT) -> tuple[str, str]:
    """Wait until the process has exited with code 0; returns its output and errors."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, f"{out}\n{err}"
    return out, err
