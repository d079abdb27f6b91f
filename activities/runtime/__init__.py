"""What all activities share in a worker process: heartbeats, the event writer, workspaces, definitions."""
