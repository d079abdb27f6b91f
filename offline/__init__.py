"""An Anthropic Messages stand-in over HTTP: answers from scripts, for trying Errand without a key and for its tests."""
