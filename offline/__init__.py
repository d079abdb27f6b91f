"""A stand-in for the Anthropic Messages API: answers from scripts, to try Errand without a key and to test it."""
