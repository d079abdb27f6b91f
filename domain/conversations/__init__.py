"""Conversations. Read requests.py first (what the workflow is asked and keeps), then mailbox.py and subagents.py;
then the exact texts of the delegation tools, messages for display and requests for variables.

Everything may import this package; it imports only domain/.
"""
