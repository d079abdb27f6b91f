"""Triggers: events from outside, their conditions, and the messages that they become."""
