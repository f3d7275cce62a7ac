"""The command pscompy gateway."""
