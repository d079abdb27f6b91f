-- Shows that a model call backs off, until its next attempt begins; `p` is a RetryNote.
CREATE OR REPLACE FUNCTION note_retry(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE sessions SET retry = p ->> 'retry', updated_at = now()
     WHERE tenant = p ->> 'tenant' AND id = p ->> 'session_id' AND status NOT IN ('completed', 'failed', 'cancelled');
    IF FOUND THEN PERFORM append_events('', false, p -> 'events'); END IF;
END $$;
