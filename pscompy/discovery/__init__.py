"""Which transports there are, in the order in which they are tried."""
