-- Agents with two sides: which side of its agent wrote a message, and the sides a session's loop lets take turns.

ALTER TABLE messages ADD COLUMN side text NOT NULL DEFAULT 'a';
ALTER TABLE sessions ADD COLUMN sides text;                 -- JSON; null: one model, and people on the other side
ALTER TABLE sessions ADD COLUMN status_text text;           -- what the session itself published as its status
