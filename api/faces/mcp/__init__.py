"""The Model Context Protocol, at /mcp: agents are tools, and tasks use the tasks extension.

Read `routes` (one message), `server` (each method and its function, and the resources), `tools` (the tools and their
calls), `view` (a task as this protocol shows it). The library is loaded at the first message.
"""
