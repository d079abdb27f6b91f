"""Input requests: what a session asks people, and what follows from their answers.

Read open.py (the three activities: a request is opened, answered or reminded of), then external_tools.py (calls that
the caller answers) and approved_files.py (what an approver sees of files, and whether it has changed since). The wiring
imports open.py; tools and rules use the others.
"""
