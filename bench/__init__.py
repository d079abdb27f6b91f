"""Measurements of Errand against a bare Temporal loop, on a stack of their own: `python -m bench`."""
