"""Turns of a conversation, and what callers do to a session that is running.

Read `bodies`, `run` (a turn), `fire` (a turn from the mailbox), `control` (answer, steer, stop, reset), `deferred`
(a message that answers what a session waits for). It builds on `submission`; routes and faces import it.
"""
