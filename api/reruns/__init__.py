"""Reruns of a task from one of its steps."""
