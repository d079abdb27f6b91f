"""Delegation: starting subagents and collecting their outcomes."""
