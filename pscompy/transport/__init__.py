"""The contract of a transport, its kit for C, its base class for Python."""
