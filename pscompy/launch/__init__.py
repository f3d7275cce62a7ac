"""`pscompy run`: starts n ranks on this machine and speaks PMI-1 with them."""
