"""Measurements of Errand against a bare Temporal loop, on a separate stack: `python -m bench`.

Read lab.py (the stack), bare.py (the loop that nothing can undercut), ours.py, steps.py (one measurement), table.py;
the other files measure one thing each, some as programs of their own. It may import everything, and only tests import
it.
"""
