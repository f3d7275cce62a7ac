"""What holds for all tests."""

import signal

# A shell without job control starts what runs in the background with Ctrl-C ignored, and every
# program started from there inherits that. Tests that interrupt programs need it as usual.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
