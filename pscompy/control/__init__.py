"""The control plane: which process connects to which, over which transport, and until when.

From the top: `manager` owns the parts and their thread. `ondemand`, which is imported at the first
precon, decides which precon to a peer is used, `dialing` makes precons, `listening` and `admission`
accept them; `node_connect` connects ranks of one node without a precon, and sends notices by
`datagrams`. `negotiation` runs on one precon, whose bytes are `precon` and `handshake/`, and tries
the `candidates` that `selection` orders. `connections` installs the lanes and ends them, while
`progress` drives the transports. `worker`, `transports` and `lane` call the core.
tests/test_layers.py has the order of all modules.
"""
