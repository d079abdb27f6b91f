"""Schedules: tick.py is what happens when one is due, own.py those that an agent makes for itself. The wiring imports
both, the tool manage_schedule and the messages of agents own.py.
"""
