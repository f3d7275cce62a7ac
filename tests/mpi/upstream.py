"""`./run mpi-tests`: runs mpi4py's own tests on the library, beside them on MPICH, and counts.

    python -m tests.mpi.upstream [-n RANKS] [--tcp] [--alone] [--folder FOLDER] [NAME ...]

NAMEs are files of its tests, such as test_p2p_buf, or numbers of STEPS; all steps by default. The
tests come from the source distribution of the version that is installed, which pip brings into
FOLDER, or else into one that is removed at the end. MPICH is the one that benchmarks install; the
last column has the number of tests that pass with it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.mpi.launchers import Launcher, mpich, ours

STEPS = {
    "1": """address buffer cffi ctypes doc environ grequest mpiabi mpiapi mpimem msgspec msgzero
        objmodel p2p_buf p2p_buf_matched p2p_obj p2p_obj_matched package pickle request status
        threads toplevel""",
    "2": """attributes comm errhandler errorcode exceptions group handle info subclass ulfm""",
    "3": """cco_buf cco_obj cco_vec cco_nb_buf cco_nb_vec cco_pr_buf cco_pr_vec op""",
    "4": "datatype pack util_dtlib util_pkl5",
    "5": "win",
    "6": "cco_buf_inter cco_obj_inter cco_vec_inter comm_inter util_pool",
    "7": "cco_ngh_buf cco_ngh_obj cco_pr_ngh_buf comm_topo",
}
SECONDS = 900  # for one file; on two busy cores some take minutes, with 5 ranks most
KINDS = ("passed", "failed", "absent", "skipped")

# A rank's program: a file of tests. A test that meets NotImplementedError is absent.
RANK = """
import sys
import unittest

from mpi4py import MPI

suite = unittest.defaultTestLoader.loadTestsFromName(sys.argv[1])
result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2).run(suite)
texts = {str(test): text for test, text in result.errors + result.failures}
# these go on with a null window when there is none of their kind
absent = sum("NotImplementedError" in text or "RMA" in test for test, text in texts.items())
skipped = len({str(test) for test, _ in result.skipped})
failed = len(texts) - absent
passed = result.testsRun - failed - absent - skipped
print("counted", MPI.COMM_WORLD.rank, passed, failed, absent, skipped, flush=True)
"""


def bring(folder: Path) -> Path:
    """The folder of mpi4py's tests, which are brought into this folder if they are not there."""
    version = importlib.metadata.version("mpi4py")
    tests = folder / f"mpi4py-{version}" / "test"
    if not tests.is_dir():
        words = ["download", "-q", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
        command = [sys.executable, "-m", "pip", *words, "-d", str(folder), f"mpi4py=={version}"]
        subprocess.run(command, check=True)
        [archive] = folder.glob("mpi4py-*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    return tests


def files(names: list[str], tests: Path) -> Iterator[str]:
    for name in names or STEPS:
        for word in STEPS.get(name, name.removeprefix("test_")).split():
            if (tests / f"test_{word}.py").exists():
                yield f"test_{word}"


def count(launcher: Launcher, name: str, tests: Path, ranks: int) -> tuple[Counter[str], str]:
    """The counts of the rank that passed fewest, and what has gone wrong."""
    ended = launcher.searching(tests).run(["-c", RANK, name], tests, SECONDS)
    if ended is None:
        return Counter(), "hung"
    rows = re.findall(r"^counted \d+ (\d+) (\d+) (\d+) (\d+)$", ended.output, re.M)
    if len(rows) < ranks or ended.code:
        last = ended.errors.strip().splitlines()[-1:]
        return Counter(), f"died ({ended.code}): {' '.join(last)}"
    worst = min(rows, key=lambda row: int(row[0]))
    return Counter(dict(zip(KINDS, map(int, worst), strict=True))), ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-n", dest="ranks", type=int, default=2)
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--library", type=Path, help="a libmpi.so.12; built by default")
    parser.add_argument("--alone", action="store_true", help="without MPICH")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(run(options, Path(temporary)))


def run(options: argparse.Namespace, temporary: Path) -> int:
    library = options.library or temporary / "libmpi.so.12"
    if options.library is None:
        from pscompy_mpi.build import build

        build(temporary)
    tests, ranks = bring(options.folder or temporary), options.ranks
    own = ours(ranks, options.tcp, library)
    other = None if options.alone else mpich(ranks, options.tcp)
    total: Counter[str] = Counter()
    broken = 0
    print(f"{'':24}{''.join(f'{kind:>9}' for kind in KINDS)}{'   MPICH' if other else ''}")
    for name in files(options.names, tests):
        counted, wrong = count(own, name, tests, ranks)
        total += counted
        broken += bool(wrong)
        print(f"{name:24}{wrong or row(counted)}", end="", flush=True)
        if other:
            counted, wrong = count(other, name, tests, ranks)
            total["MPICH"] += counted["passed"]
            print(f" {wrong}" if wrong else f"{counted['passed']:8}", end="")
        print()
    last = f"{total['MPICH']:8}" if other else ""
    print(f"{'all':24}{row(total)}{last}; {broken} files hung or died")
    return 1 if total["failed"] or broken else 0


def row(counted: Counter[str]) -> str:
    return "".join(f"{counted[kind]:9}" for kind in KINDS)


if __name__ == "__main__":
    main()
