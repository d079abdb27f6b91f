"""The embedded stack, and the files of a deployment.

Read stack.py (which parts a stack has, and with which settings), supervisor.py (starts and restarts them), state.py
(what others can read of a running one), local.py (what `errand up`, `down` and `status` call); postgres.py and
temporal.py are the two servers, certificates.py and ui_guard.py protect Temporal. The command line and the bench import
it; the worker and the API do not know who started them.
"""
