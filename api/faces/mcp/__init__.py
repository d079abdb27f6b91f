"""The Model Context Protocol face, at /mcp: agents are tools, and tasks use the tasks extension."""
