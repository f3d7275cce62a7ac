"""Parcels: Python objects without copies, and actions on other processes.

`archive` divides objects into a head (the first message) and chunks (long buffers) and restores
them, without I/O; `pickling` holds the serialisers; `objects` sends and receives heads and chunks.
`action`, `action_service` and `executor` run functions on other processes. Each module is imported
at its first use.
"""
