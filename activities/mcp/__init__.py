"""MCP servers as tools: connections to them, their tool lists, and calls of their tools."""
