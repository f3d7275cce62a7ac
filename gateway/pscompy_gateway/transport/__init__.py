"""The gateway's transport inside a process."""
