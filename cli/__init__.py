"""The command line: a client of the HTTP API, which also starts and stops the embedded stack. Nothing imports it."""
