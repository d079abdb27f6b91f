"""Rows as a reader sees them: `results` (a task and its result), `conversation` (its sessions, agent and messages),
`trace` (every step). Nothing is written here; routes and faces import it.
"""
