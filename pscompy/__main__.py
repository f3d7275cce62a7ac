"""`python -m pscompy` is the program `pscompy`."""

import sys

from pscompy.cli.main import main

sys.exit(main())
