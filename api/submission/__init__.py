"""Accepting a task: validation first, then one transaction."""
