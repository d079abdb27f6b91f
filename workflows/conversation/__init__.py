"""The Conversation workflow: starts sessions and delivers outcomes."""
