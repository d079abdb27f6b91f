"""A stand-in for the models' servers: answers from scripts, to try Errand without a key and to test it.

Read server.py (the routes), checks.py (what the real server would refuse), transcript.py and markers.py (what a request
says), scripts/ (who answers), wire.py and completions.py (the two forms of a reply), faults.py,
usage.py (its bill) and library.py (its web). It imports nothing of ours, and runs as a program of its own.
"""
