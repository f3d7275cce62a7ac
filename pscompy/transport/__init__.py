"""The contract of transports (transport.h), helpers for transports in C (kit), and the base class
of transports in Python (python)."""
