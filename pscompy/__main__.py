"""Runs the command-line program `pscompy` for `python -m pscompy`."""

import sys

from pscompy.cli.main import main

try:
    sys.exit(main())
except ModuleNotFoundError:
    import pscompy.core  # noqa: F401  (says so if this is a source folder, not an installation)

    raise
