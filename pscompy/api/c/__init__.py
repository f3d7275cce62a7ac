"""The hand-written extension: what a program calls per message, over psc_api_t, the core's table of
functions."""

import pscompy.core  # noqa: F401  (says what to do if nothing is built)
