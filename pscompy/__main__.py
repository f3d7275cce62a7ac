"""Runs the command-line program `pscompy` for `python -m pscompy`."""

import sys

from pscompy.cli.main import main

try:
    sys.exit(main())
except ModuleNotFoundError:
    import pscompy.core  # noqa: F401  (raises an error that explains a folder without a build)

    raise
