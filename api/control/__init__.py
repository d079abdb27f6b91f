"""Stopping sessions and answering input requests."""
