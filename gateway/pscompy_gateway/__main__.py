"""`python -m pscompy_gateway` is `pscompy gateway`."""

import sys

from pscompy.config.standard_files import open_standard_files
from pscompy_gateway.cli.command import main

open_standard_files()
sys.exit(main(sys.argv[1:]))
