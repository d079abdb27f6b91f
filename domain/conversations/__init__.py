"""Conversations: requests to the workflow, its state, the mailbox and delegation."""
