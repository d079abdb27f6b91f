"""The Session workflow: the reasoning loop of one task."""
