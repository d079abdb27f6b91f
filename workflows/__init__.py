"""The workflows, in what order things happen, and their helpers.

Read session/ (one task), conversation/ (many of them), then activity_calls.py (every timeout and retry) and registry.py
(the small ones, and the list of all). client.py is how API, activities and command line start and signal them; ui.py is
what Temporal's Web UI shows. The worker registers and wires them; other packages import client.py, schedules.py,
codec.py, telemetry.py and replay.py only. It imports domain/ alone.
"""
