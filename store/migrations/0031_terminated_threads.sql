-- A thread that was terminated accepts nothing any more: no session, and no message.
ALTER TABLE threads ADD COLUMN terminated_at timestamptz;
