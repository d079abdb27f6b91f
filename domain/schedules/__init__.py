"""Schedules: when an agent is sent a message, and what may keep it from being sent."""
