-- The workflow run that a session belongs to. What another run begins, claims or commits is refused.
ALTER TABLE sessions ADD COLUMN run_id text;
