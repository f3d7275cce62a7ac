"""What a transport implements (transport.h), helpers for transports in C (kit), and the base class
of transports in Python (python)."""
