"""`python -m gateway` is `pscompy gateway`."""

import sys

from gateway.command import main

sys.exit(main(sys.argv[1:]))
