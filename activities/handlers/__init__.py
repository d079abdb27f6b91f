"""Handlers: Python code that takes the turns of a side. call_handler.py is the step, registry.py has those of the
platform and finds those of the user's module. Only a side with a handler enters it.
"""
