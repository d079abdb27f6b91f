"""The Session workflow: the reasoning loop of one task.

Read workflow.py (one life, one ending), loop.py (ask, act, repeat), tools.py (the calls of a reply) and context.py
(what all lines of a session share). delegation.py, requests.py and hooks.py are entered only by sessions that start
others, ask people or have hooks. Only workflows import it.
"""
