"""Notifications. dispatcher.py finds what is due, deliver.py is one attempt, channels.py the ways to send it.
The dispatcher runs beside the worker; the wiring imports the rest.
"""
