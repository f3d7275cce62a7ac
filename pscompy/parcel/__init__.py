"""Parcels: Python objects without copies, and actions on other processes.

`archive` takes objects apart and puts them together again and does no I/O, `pickling` says by
which serialiser, `objects` sends what comes of it. `action`, `service` and `executor` run
functions where their arguments arrive. All of it is loaded at its first use.
"""
