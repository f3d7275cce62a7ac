"""Runs programs of several ranks that the tests contain as text."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pscompy

BOUND = float(os.environ.get("PSCOMPY_TEST_SECONDS", "250"))


def run(ranks, program, tmp_path, *arguments, **variables):
    """Run a program on `ranks` ranks; returns the lines of their output, sorted."""
    script = tmp_path / "program.py"
    script.write_text("import numpy as np, pscompy\n" + textwrap.dedent(program))
    return sorted(run_file(ranks, script, *arguments, **variables))


def run_file(ranks, script, *arguments, **variables):
    """Run the file on `ranks` ranks; returns the lines of its output."""
    packages = str(Path(pscompy.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "pscompy", "run", "-n", str(ranks), str(script), *arguments],
        env={**os.environ, "PYTHONPATH": packages, **variables},
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()
