"""Hooks: functions of the user that run at certain moments of a session."""
