"""Printing: text for people and JSON for scripts. output.py has the parts, answers.py lists and single answers,
event_printer.py the events of a task, traces.py and markdown.py what their names say. All commands import it.
"""
