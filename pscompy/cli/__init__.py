"""The program `pscompy` and those of its sub-commands that have no other home."""
