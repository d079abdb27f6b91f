-- Closes a request for its session: it was answered, or it expires now. After the last open one the session is shown as
-- working. `p` is a RequestSettlement.
CREATE OR REPLACE FUNCTION settle_request(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    n request_settlement := jsonb_populate_record(NULL::request_settlement, p);
    r input_requests;
BEGIN
    -- Lock the session first, as in all functions: an ending or a cancel locks its row before requests and counters.
    PERFORM 1 FROM sessions WHERE tenant = n.tenant
        AND id = (SELECT session_id FROM input_requests WHERE tenant = n.tenant AND id = n.id) FOR NO KEY UPDATE;
    SELECT * INTO r FROM input_requests WHERE tenant = n.tenant AND id = n.id FOR UPDATE;
    PERFORM check_run(n.tenant, r.session_id, n.run, false, false);
    IF r.status = 'open' THEN
        UPDATE input_requests SET status = 'expired' WHERE tenant = n.tenant AND id = r.id;
        IF r.kind <> 'external_event' THEN  -- people need not know that an event did not happen
            PERFORM append_events('', false, n.expired);
        END IF;
        PERFORM append_audit(n.tenant, r.conversation_id, 'errand', 'expire', r.session_id, r.kind || ' ' || r.id, NULL);
        SELECT * INTO r FROM input_requests WHERE tenant = n.tenant AND id = n.id;
    END IF;
    UPDATE input_requests SET settled = true WHERE tenant = n.tenant AND id = r.id;
    UPDATE sessions SET status = 'working', updated_at = now()
     WHERE tenant = n.tenant AND id = r.session_id AND status = 'input_required'
       AND NOT EXISTS (SELECT 1 FROM input_requests o WHERE o.tenant = n.tenant AND o.session_id = r.session_id
                          AND o.status = 'open');
    RETURN to_jsonb(r) - 'settled';
END $$;
