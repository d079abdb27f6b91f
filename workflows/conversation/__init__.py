"""The Conversation workflow: starts sessions and delivers outcomes.

Read workflow.py (the entity, then how sessions are started), then router.py (every decision, without an await). Only
workflows import it.
"""
