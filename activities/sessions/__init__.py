"""The beginning and the end of sessions. Read open.py (sessions, and what a new run of one needs), finish.py (the one
ending), acceptance.py (the check before it), sweep.py (what a crash left; it runs beside the activities). The wiring
and the worker import it.
"""
