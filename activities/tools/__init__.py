"""Tools that a model may call, and the activity that runs a call."""
