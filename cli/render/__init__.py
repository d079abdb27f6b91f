"""Printing: text for people and JSON for scripts."""
