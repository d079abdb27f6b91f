"""Hooks: a user's code at moments of a session. hook.py is what a hook is, and finds those of the user's
module; run_hooks.py runs them. Model and tool calls enter it only for an agent that names hooks.
"""
