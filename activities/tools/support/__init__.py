"""What built-in tools share: paths.py, the workspace without ways out of it, which also serves what else handles files
of a workspace; html_text.py, the text of a page, a script for fetch_url.
"""
