-- Opens a request and shows the session as waiting; an id is opened once. NULL: the session has
-- opened as many requests of this kind as it may, or it has ended. `p` is a RequestOpening.
CREATE OR REPLACE FUNCTION open_request(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    n request_opening := jsonb_populate_record(NULL::request_opening, p);
    r input_requests := jsonb_populate_record(NULL::input_requests, n.request);
    s sessions;
BEGIN
    SELECT * INTO s FROM sessions WHERE tenant = n.tenant AND id = r.session_id FOR UPDATE;   -- one request at a time
    PERFORM check_run(n.tenant, s.id, n.run, false, false);
    UPDATE sessions SET run_id = n.run WHERE tenant = n.tenant AND id = s.id AND run_id IS NULL AND n.run IS NOT NULL;
    IF s.status IN ('completed', 'failed', 'cancelled')
       OR (SELECT count(*) FROM input_requests WHERE tenant = n.tenant AND session_id = s.id AND kind = r.kind
              AND id <> r.id) >= n.most THEN
        RETURN NULL;
    END IF;
    INSERT INTO input_requests (tenant, id, conversation_id, session_id, kind, question, details, answer_schema, deadline,
                                on_expiry, default_answer, gate, event_key)
    VALUES (n.tenant, r.id, r.conversation_id, r.session_id, r.kind, r.question, r.details, r.answer_schema, r.deadline,
            r.on_expiry, r.default_answer, r.gate, r.event_key)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        -- nobody has to act on a session that waits for an event
        UPDATE sessions SET status = CASE WHEN r.kind = 'external_event' THEN status ELSE 'input_required' END, progress = r.question, updated_at = now()
         WHERE tenant = n.tenant AND id = r.session_id AND status IN ('submitted', 'working');
        PERFORM append_events('', false, n.events);
        PERFORM append_audit(n.tenant, s.conversation_id, 'agent ' || s.agent, 'ask', s.id, r.kind || ' ' || r.id,
                             r.question);
    END IF;
    RETURN (SELECT jsonb_build_object('deadline', deadline, 'status', status)
              FROM input_requests WHERE tenant = n.tenant AND id = r.id);
END $$;
