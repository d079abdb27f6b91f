"""Hooks: functions of the user that run at moments of a session."""
