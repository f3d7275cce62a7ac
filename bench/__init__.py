"""What `./run bench` runs: pscompy against its peers and the machine's limits, in one run."""
