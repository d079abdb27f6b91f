"""The HTTP API: stateless, in any number of processes. A server runs `api.app:app`; `cli` is its client."""

import settings as settings  # adds the folder of the package `errand` to the path
