"""Discovery: finds the transports, and puts them in the order in which they are tried."""
