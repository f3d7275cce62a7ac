"""The public API: sessions, listeners, connections, requests, memory."""
