"""Tools: what a model can call. Read tool.py (what a tool is), run_tool.py (a call, from claim to commit), offered.py
(which tools a line is offered), rules.py (which calls may run); then registry.py with the tools in builtin/.
declared_tools.py and risks.py are features: tools without code, and missions. A tool imports tool.py and support/,
never run_tool.py.
"""
