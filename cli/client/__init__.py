"""The HTTP client of the command line."""
