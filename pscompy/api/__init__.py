"""What programs call: sessions, listeners, connections, requests, memory."""
