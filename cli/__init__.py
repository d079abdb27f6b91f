"""The command line: a client of the HTTP API, which also starts and stops the embedded stack. Nothing imports it."""

import settings as settings  # adds the folder of the package `errand` to the path
