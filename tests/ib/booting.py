"""The guests in which the tests of ib run, each booted within a second: a kernel with Soft-RoCE.

PSCOMPY_TEST_UML names the kernel, which tests/ib/guest/build-kernel makes.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KERNEL = os.environ.get("PSCOMPY_TEST_UML", "")
GUEST_DIED = 99  # exit code of `boot` if the guest died
OTHER_KERNEL = "tests/ib/guest/build-kernel makes one that does, also where the processor has AMX"
PROGRAMS = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def missing() -> str | None:
    """The reason why no guest can run on this machine; None if one can."""
    if not KERNEL:
        return "PSCOMPY_TEST_UML names no kernel (tests/ib/guest/build-kernel makes one)"
    if not os.access(KERNEL, os.X_OK):
        return f"PSCOMPY_TEST_UML={KERNEL} cannot be run"
    tools = {"ip": "iproute2", "rdma": "iproute2", "busybox": "busybox-static"}
    for tool, package in tools.items():
        if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin:/bin"):
            return f"the guest needs {package}"
    if not Path("/usr/include/infiniband/verbs.h").exists():
        return "the guest needs libibverbs-dev"
    return None


IN_A_GUEST = [
    pytest.mark.skipif(bool(missing()), reason=str(missing())),
    pytest.mark.timeout(1000),
]


def boot(command: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in a guest of its own, in the project's folder.

    A guest may die, or its kernel hang, for reasons that have nothing to do with the command,
    which has time limits of its own. This is printed, and a second guest is tried. The test is
    skipped if no guest starts on this machine, whatever the command.
    """
    done = booted(command)
    if done.returncode == GUEST_DIED:
        print("the guest died; once more")
        done = booted(command)
    if done.returncode == GUEST_DIED and booted("true").returncode == GUEST_DIED:
        pytest.skip(f"{KERNEL} does not start on this machine: {OTHER_KERNEL}")
    return done


def booted(command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [HERE / "guest" / "boot", command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    print(done.stdout[-20000:], done.stderr[-5000:])
    return done


def run_suites(*suites: str, **environ: str) -> int:
    """Run files `suite_*.py` of this folder in one guest, with these variables besides those of the
    tests. Returns pytest's exit code."""
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    pytest_ += ["-p", "no:hypothesispytest", "-p", "no:xdist"]  # they take seconds to import
    pytest_ += [f"tests/ib/{suite}" for suite in suites]
    environ |= {k: v for k, v in os.environ.items() if k.startswith("PSCOMPY_TEST_")}
    given = [f"{k}={v}" for k, v in environ.items()]
    return boot(shlex.join(["env", *given, *pytest_])).returncode
