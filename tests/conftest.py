"""Settings for all tests."""

import os
import signal

from hypothesis import HealthCheck, settings

# A shell without job control starts background programs with SIGINT ignored, and their children
# inherit that. Tests that interrupt programs need the usual handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No assertion may depend on the speed of the machine, and every run uses the same examples.
settings.register_profile(
    "pscompy",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pscompy")

# Tests look up names that do not exist; limit the wait if the name server cannot be reached.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
