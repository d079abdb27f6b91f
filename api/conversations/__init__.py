"""Turns of a conversation: run, fire, steer."""
