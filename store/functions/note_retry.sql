-- Shows that a model call waits for its next attempt; `p` is a RetryNote.
CREATE OR REPLACE FUNCTION note_retry(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n retry_note := jsonb_populate_record(NULL::retry_note, p);
BEGIN
    UPDATE sessions SET retry = n.retry, updated_at = now()
     WHERE tenant = n.tenant AND id = n.session_id AND status NOT IN ('completed', 'failed', 'cancelled');
    IF FOUND THEN PERFORM append_events('', false, n.events); END IF;
END $$;
