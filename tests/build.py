"""Compiles the suites in C and the modules of the tests, and installs the peers that benchmarks
are tested with: `python -m tests.build`, which ./run does before it runs all tests.

The first test that needs what is not listed here makes it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from bench import peers
from tests.bridge import test_bridge
from tests.compiler import ADDRESS, THREAD, Compiler
from tests.contract import test_contract
from tests.core import test_core
from tests.ib import booting
from tests.ib import test_contract as test_ib
from tests.portals.ni import test_ni

KEPT = 86_400.0  # seconds that what no run has used is kept


def compile_all(compiler: Compiler, folder: Path) -> None:
    core = [*product(test_contract.NAMES, (ADDRESS, THREAD)), ("shm", test_core.LARGE_PAGES)]
    contract = [*product(test_contract.NAMES, (ADDRESS,)), ("shm", THREAD)]
    jobs = [(test_core.compile_driver, *it) for it in core]
    jobs += [(test_contract.compile_driver, *it) for it in contract]
    jobs += [
        (it.compile_driver, flags) for it in (test_bridge, test_ni) for flags in (ADDRESS, THREAD)
    ]
    if not booting.missing():
        jobs += [(test_ib.compile_driver, flags) for flags in (test_ib.SANITIZE, [])]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        begun = [
            pool.submit(compile_driver, compiler, folder / str(number), *given)
            for number, (compile_driver, *given) in enumerate(jobs)
        ]
    for future in begun:
        future.result()


def main() -> None:
    # pytest rewrites the assertions of a module at its first import, and keeps what it has made.
    collecting = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
    collection = subprocess.Popen(collecting, stdout=subprocess.DEVNULL)
    compiler = Compiler()
    with ThreadPoolExecutor() as pool, tempfile.TemporaryDirectory() as folder:
        pool.map(peers.environment, ("mpich", "openmpi"))
        compile_all(compiler, Path(folder))
    compiler.forget(time.time() - KEPT)
    collection.wait()


if __name__ == "__main__":
    main()
