"""`pscompy run`: starts n ranks, here or on several hosts, and serves their PMI-1 requests."""
