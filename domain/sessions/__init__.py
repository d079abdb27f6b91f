"""Sessions: states, steps, input requests, effects and traces."""
