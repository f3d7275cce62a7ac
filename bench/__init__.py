"""`./run bench`: compares pscompy with its peers and with the machine's limits, in one run."""
