"""The two workflows and their helpers; outsiders use `workflows.client` only."""
