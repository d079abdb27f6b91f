"""Measurements of Errand against a bare Temporal loop, on a separate stack: `python -m bench`."""
