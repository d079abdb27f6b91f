"""The command line: a program on the Python client, which also starts and stops the embedded stack.

Read main.py (the list of commands), options.py and api.py (what each command is given), then one of commands/; watch.py
and answering.py are what several of them do, render/ prints, and chat/ is the one command with a folder of its own.
Nothing imports it but the program `errand` itself.
"""

import domain as domain  # first: in a checkout it finds the package `errand`
