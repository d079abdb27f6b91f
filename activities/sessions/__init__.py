"""The beginning and the end of sessions, and the sweep that repairs lost ones."""
