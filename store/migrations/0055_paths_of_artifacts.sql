-- The path in its workspace of a file that a session saved: texts that leave the workspace name the copy instead.
ALTER TABLE files ADD COLUMN path text;
