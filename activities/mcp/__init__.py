"""Tools of MCP servers. Read mcp_tool.py (what a model is offered), call.py (one call), connection.py, remote_task.py
(calls that continue on the server), program.py (servers that are programs), discover.py (the pinned lists of tools).
The protocol's library takes a second to load, so mcp_tool.py loads the rest with the first call. tools/ imports
mcp_tool.py; the wiring discover.py, the worker that and program.py.
"""
