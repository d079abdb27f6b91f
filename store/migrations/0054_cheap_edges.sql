-- A task may be accepted with a definition that was read earlier, if it is still the current one.
ALTER TYPE acceptance ADD ATTRIBUTE agent_digest text;
-- Whether a workflow of the conversation has begun, to which ends are posted. Of earlier conversations nobody knows.
ALTER TABLE conversations ADD COLUMN has_workflow boolean NOT NULL DEFAULT true;
ALTER TABLE conversations ALTER COLUMN has_workflow SET DEFAULT false;
