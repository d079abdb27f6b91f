"""Schedules: when a message is sent to an agent, and when it is not."""
