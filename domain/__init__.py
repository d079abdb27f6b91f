"""Pure types and pure rules: imports nothing else of ours, does no I/O, and is safe inside workflows."""
