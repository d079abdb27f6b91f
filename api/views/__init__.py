"""Rows as a reader sees them: `results` (a task and its result), `conversation` (its sessions, agent and messages),
`trace` (every step), `texts` (Markdown as clean HTML, for the console). Nothing is written here; routes, faces and
turns import it.
"""
