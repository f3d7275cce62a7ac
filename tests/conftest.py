"""What holds for all tests."""

import os
import signal

from hypothesis import HealthCheck, settings

# A shell without job control starts what runs in the background with Ctrl-C ignored, and every
# program started from there inherits that. Tests that interrupt programs need it as usual.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing that a test asserts may depend on how fast the machine is, and what passed once passes
# again: the examples are the same in every run.
settings.register_profile(
    "pscompy",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pscompy")

# Names that do not exist are looked up: where the name server is out of reach, not for minutes.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
