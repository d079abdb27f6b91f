"""The HTTP API: stateless, any number of processes. `api.app:app` is what a server runs; `cli` is its client."""
