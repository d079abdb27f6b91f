"""Event feeds over server-sent events and WebSocket."""
