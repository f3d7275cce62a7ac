"""`python -m pscompy_gateway` is `pscompy gateway`."""

import sys

from pscompy_gateway.cli.command import main

sys.exit(main(sys.argv[1:]))
