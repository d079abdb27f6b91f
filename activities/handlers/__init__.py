"""Handlers: Python code that takes the turns of a side."""
