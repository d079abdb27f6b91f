-- A model call backs off: attempt, reason and next time are shown until the next attempt begins.
CREATE OR REPLACE FUNCTION note_retry(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE sessions SET retry = p ->> 'retry', updated_at = now()
     WHERE tenant = p ->> 'tenant' AND id = p ->> 'session_id' AND status NOT IN ('completed', 'failed', 'cancelled');
    IF FOUND THEN PERFORM append_events('', false, p -> 'events'); END IF;
END $$;
