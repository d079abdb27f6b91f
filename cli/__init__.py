"""The command line: a client of the HTTP API, and the door to the embedded stack. Nothing else imports it."""
