"""`pscompy run`: starts n ranks on this machine and serves their PMI-1 requests."""
