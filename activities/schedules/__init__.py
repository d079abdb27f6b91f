"""Schedules. tick.py is what happens when one is due, own.py those that an agent makes for itself, sync.py keeps
Temporal's schedules as the database has them. The wiring imports them; the sweeper uses sync.py.
"""
