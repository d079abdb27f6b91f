"""The tools that come with the platform, one file each; those that coordinate agents are the table in agents.py.
Each imports activities/tools/tool.py and support/; registry.py imports them.
"""
