"""Delegation: starting other agents and collecting what they made.

Read spawn.py (all delegation calls of one step), plan.py (which child each starts, or why it may not), settle.py (the
record of a call, and its result), messages.py (what agents say to each other); attempts.py is a feature of
repositories. The tools are the table in tools/builtin/agents.py. The wiring imports this package, requests/ and
sessions/ the parts with which they end or start a child, and what acts for a thread its messages.
"""
