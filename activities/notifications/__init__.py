"""Notifications: one delivery attempt, and the dispatcher that starts deliveries."""
