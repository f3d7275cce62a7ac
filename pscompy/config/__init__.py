"""The PSP_ variables: declarations, parsers, values."""
