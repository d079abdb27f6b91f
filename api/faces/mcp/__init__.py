"""The face of the Model Context Protocol, at /mcp: agents as tools, tasks by the tasks extension."""
