"""The program `pscompy` and its sub-commands `endpoints`, `info` and `perf`."""
