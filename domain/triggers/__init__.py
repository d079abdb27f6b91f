"""Triggers: events from outside, what they must look like, and the messages they become."""
