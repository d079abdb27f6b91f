"""Notifications. dispatcher.py finds what is due, deliver.py is one attempt, channels.py the ways to send it.
The dispatcher runs beside the worker, and the sweep lets it repair; the wiring imports the rest.
"""
