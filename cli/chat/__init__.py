"""The interactive chat. Read loop.py (a turn after the other; lines and events in one queue), view.py (what is
printed), commands.py (what begins with a slash), terminal_input.py (editing a line). The command chat imports loop.py.
"""
