"""Parts that all activities of a worker process share: heartbeats, the event writer, workspaces, definitions."""
