"""The command line: a client of the HTTP API, which also starts and stops the embedded stack. Nothing imports it."""

import domain as domain  # first: in a checkout it finds the package `errand`
