"""What built-in tools share: paths.py, the workspace without ways out of it; child.py, scripts that can be stopped,
with the two scripts match_lines.py and html_text.py. Tools import both, and paths.py also what else handles files of a
workspace.
"""
