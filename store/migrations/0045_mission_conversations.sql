-- The mission of a conversation is looked up for every turn in it.
CREATE INDEX missions_by_conversation ON missions (tenant, conversation_id);
CREATE INDEX schedule_runs_by_session ON schedule_runs (tenant, session_id) WHERE session_id IS NOT NULL;
