"""Faces: other protocols over the same tasks, `mcp` and `responses`. Each reads the event log and calls what the routes
call, so that checks and rights exist once. `api.app` imports them, and of `responses` the middleware the form of its
errors and webhooks its fold.
"""
