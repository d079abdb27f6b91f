-- The path in its workspace of a file that a session saved: texts that leave the workspace name the copy instead.
ALTER TABLE files ADD COLUMN path text;

-- What a task must not do is judged at its end.
ALTER TYPE submitted_task ADD ATTRIBUTE constraints text[];
