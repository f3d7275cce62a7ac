"""A network interface of Portals 4 in software: a shared library with the functions of the
specification, which needs nothing but UDP. The portals transport opens it at run time."""

from pathlib import Path

LIBRARY = Path(__file__).with_name("libsoftni.so")
"""The library; it is missing if nothing was built."""
