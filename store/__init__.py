"""PostgreSQL, the only SQL: one file for each family of tables, in the words of migrations/0001_schema.sql.

Read database.py first (the pool, and retries), then along a task: sessions.py (accepted, read, stopped, ended), runs.py
(the workflow run that owns one), messages.py (model steps and the message tree), tool_calls.py, events.py; then
conversations.py, threads.py and mailbox.py. What takes one round trip is a function in functions/; migrate.py applies
migrations, functions and roles.

It imports only domain/. API, activities and commands may import it; workflows may not.
"""

import domain  # noqa: F401 - finds the package errand
