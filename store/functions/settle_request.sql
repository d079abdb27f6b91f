-- Closes a request for its session: it was answered, or expires now. After the last open one the session is shown as
-- working.
CREATE OR REPLACE FUNCTION settle_request(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    t text := p ->> 'tenant';
    r input_requests;
BEGIN
    -- the session first, as everywhere: an ending or a cancel locks its row before those of requests and counters
    PERFORM 1 FROM sessions WHERE tenant = t
        AND id = (SELECT session_id FROM input_requests WHERE tenant = t AND id = p ->> 'id') FOR NO KEY UPDATE;
    SELECT * INTO r FROM input_requests WHERE tenant = t AND id = p ->> 'id' FOR UPDATE;
    PERFORM check_run(t, r.session_id, p ->> 'run', false, false);
    IF r.status = 'open' THEN
        UPDATE input_requests SET status = 'expired' WHERE tenant = t AND id = r.id;
        IF r.kind <> 'external_event' THEN  -- that nothing happened is no news for people
            PERFORM append_events('', false, p -> 'expired');
        END IF;
        PERFORM append_audit(t, r.conversation_id, 'errand', 'expire', r.session_id, r.kind || ' ' || r.id, NULL);
        SELECT * INTO r FROM input_requests WHERE tenant = t AND id = p ->> 'id';
    END IF;
    UPDATE input_requests SET settled = true WHERE tenant = t AND id = r.id;
    UPDATE sessions SET status = 'working', updated_at = now()
     WHERE tenant = t AND id = r.session_id AND status = 'input_required'
       AND NOT EXISTS (SELECT 1 FROM input_requests o WHERE o.tenant = t AND o.session_id = r.session_id
                          AND o.status = 'open');
    RETURN to_jsonb(r) - 'settled';
END $$;
