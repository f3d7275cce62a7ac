"""The transports that come with pscompy, a package each."""
