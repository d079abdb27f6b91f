"""Limits: budgets, loop detection, stop rules and anomalies."""
