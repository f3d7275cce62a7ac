"""PYTHONPATH of processes that tests start, with the storm of signals of tests/signals in it."""

from __future__ import annotations

import os
from pathlib import Path

STORM = Path(__file__).parent / "signals" / "storm"  # its sitecustomize begins the storm


def python_path(*folders: Path | str) -> str:
    """PYTHONPATH of a process that has these folders, and a storm if this process has one."""
    storm = [STORM] if "PSCOMPY_TEST_STORM" in os.environ else []
    return os.pathsep.join(map(str, [*folders, *storm]))
