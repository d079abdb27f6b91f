"""Clients of the command line: the HTTP API, its event streams, and Temporal for commands that read histories."""
