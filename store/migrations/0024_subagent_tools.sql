-- Subagents that are tools of a prompt: on which terms each works, and which threads a parent's registry lists.

ALTER TABLE sessions ADD COLUMN subagent text;              -- JSON: its terms; null: it was not started by such a tool
ALTER TABLE threads ADD COLUMN registered boolean NOT NULL DEFAULT false;
