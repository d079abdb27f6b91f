"""Pure types and rules. This package imports none of our others, does no I/O and is safe inside workflows."""
