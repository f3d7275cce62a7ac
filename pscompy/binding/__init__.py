"""The hand-written extension: what a program calls per message, over psc_api_t."""
