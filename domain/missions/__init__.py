"""Missions: agents that watch over something, run again and again, and have no single result."""
