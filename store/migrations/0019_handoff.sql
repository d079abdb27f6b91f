-- A session whose thread was handed over to another agent continues as that agent.

ALTER TABLE sessions ADD COLUMN handed_to text;             -- JSON: the agent, its models and tools; null: its own
