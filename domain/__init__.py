"""Pure types and rules: no I/O, safe inside workflows (but for sealing.py). Everything may import domain/; it imports
nothing of ours but errand.models, the values that everybody may see.

One file for each concept, or a folder where a concept has several. A reader of one task needs, in this order: task.py
(what a caller submits), agents/ (what runs it), sessions/ and messages.py (what one run is), policy/ and limits.py
(what it may do, and when it stops), events.py (what watchers see), conversations/ (how sessions work together).
wire.py has the names that cross process boundaries.
"""

import sys
from pathlib import Path

# In a checkout the package `errand` is in the folder client; where it is installed, our code is inside it.
if (client := Path(__file__).resolve().parents[1] / "client").is_dir() and str(client) not in sys.path:
    sys.path.append(str(client))
