"""Traffic in both directions at once, with queues of every size, and settings beyond the limits
of the device; run inside the guest (see test_suites.py).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from pscompy.api.session import Session
from pscompy.config.config import ConfigWarning
from pscompy.testing import remote_side
from pscompy.testing.base import Base
from pscompy.testing.process import BOUND, Far
from pscompy.testing.remote_side import payload


def pinned() -> int:
    """Bytes of this process that adapters have pinned."""
    (found,) = re.findall(r"^VmPin:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    return int(found) << 10


SIZES: list[dict[str, int]] = [{}, {"SRQ_SIZE": 16}, {"RECVQ_SIZE": 16}, {"RECVQ_SIZE": 4}]
SETTINGS = [{"EAGER": eager, **sizes} for sizes in SIZES for eager in ("auto", "srq", "rdma")]


@pytest.fixture(scope="module")
def busy() -> subprocess.CompletedProcess[str]:
    """One job, because it takes seconds to start one in a guest: a world with each settings."""
    prefixed = [{f"IB_{name}": value for name, value in it.items()} for it in SETTINGS]
    program = [Path(__file__).parent / "busy.py", *map(json.dumps, prefixed)]
    return subprocess.run(
        [sys.executable, "-m", "pscompy", "run", "-n", "2", *program],
        env={**os.environ, "PSP_SHM": "0", "PSP_TCP": "0"},
        capture_output=True,
        text=True,
        timeout=4 * BOUND,
        check=False,
    )


@pytest.mark.parametrize("number", range(len(SETTINGS)), ids=map(str, SETTINGS))
def test_both_ways_at_once(busy: subprocess.CompletedProcess[str], number: int) -> None:
    """No rank waits for buffers that never arrive, nor takes late credits for wrong ones."""
    line = f"world {number}: all is there over ib"
    assert busy.stdout.splitlines().count(line) == 2, busy.stderr


def test_all_of_them_end_well(busy: subprocess.CompletedProcess[str]) -> None:
    assert busy.returncode == 0, busy.stderr


class TestLimits(Base):
    transport = "ib"
    config: ClassVar = {}

    def test_long_buffers_are_few(self, far: Far) -> None:
        before = pinned()
        setting = {"IB_BUFFER_SIZE": "4M", "RENDEZVOUS": "inf"}
        with self.joined(far, setting, setting) as link:
            assert pinned() - before <= 3 * (64 << 20)
            for nbytes in (100, 4_000_000):
                far.begin(remote_side.echo, 1)
                link.c.send(payload(nbytes), timeout=BOUND)
                assert link.c.recv(timeout=BOUND) == payload(nbytes)
                far.result()

    @pytest.mark.parametrize(
        "beyond",
        [{"IB_COMPQ_SIZE": 1 << 20}, {"IB_SRQ_SIZE": 1 << 15, "IB_BUFFER_SIZE": 2048}],
        ids=["completions", "buffers"],
    )
    def test_what_is_beyond_the_device_is_clamped(self, far: Far, beyond: dict[str, int]) -> None:
        with self.joined(far, beyond, beyond) as link:
            far.begin(remote_side.echo, 1)
            link.c.send(payload(1000), timeout=BOUND)
            assert link.c.recv(timeout=BOUND) == payload(1000)
            far.result()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("HCA", "nix0", "no device nix0"),
        ("PORT", "7", "has no port 7"),
        ("GID_INDEX", "99", "has no GID 99"),
    ],
)
def test_who_names_what_is_not_there_is_told(name: str, value: str, reason: str) -> None:
    asked = rf"ib is asked for by PSP_IB_{name}={value} \(config\), and cannot be used: .*{reason}"
    with pytest.warns(ConfigWarning, match=asked), Session(config={f"IB_{name}": value}):
        pass


def test_one_of_several_devices_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    with Session(config={"IB_HCA": "rxe0,nix0"}):
        pass
    assert "ib: no device nix0 (PSP_IB_HCA)" in caplog.text
