"""Faces: other protocols over the same tasks. Each is a pure fold over the event log and a thin router."""
