"""Missions: agents that watch over something. They run again and again and do not have a single result."""
