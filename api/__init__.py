"""The HTTP API: stateless, in any number of processes. `python -m api` serves `api.app`.

Read `app` (what a process is made of), `http/` (what happens to every request), `routes/tasks` and `submission/` (a
task, until Temporal has it), then `conversations/` (turns, and what is done to a running session), `streams/`, `views/`
and `faces/` (other protocols over the same). Nothing but tests imports this package, except that a webhook in OpenAI's
form uses the fold of `faces/responses`.
"""

import domain as domain  # first: in a checkout it finds the package `errand`
