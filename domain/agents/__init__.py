"""Agents. Read definition.py first (what people edit), then system_prompt.py and variables.py (what its model and its
tools are given), typed_output.py and models.py; mcp_discovery.py is for definitions with MCP servers, handler.py and
hook.py are the interfaces of users' own code.

Everything may import this package; it imports only domain/.
"""
