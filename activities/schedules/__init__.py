"""Schedules: the activity behind each tick."""
