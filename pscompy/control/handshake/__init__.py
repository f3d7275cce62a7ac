"""The handshake of two processes, without I/O: bytes in, events out."""
