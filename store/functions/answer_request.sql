-- Answers a request, once: NULL, or else the status that it had already. `p` is a RequestAnswer.
CREATE OR REPLACE FUNCTION answer_request(p jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    n   request_answer := jsonb_populate_record(NULL::request_answer, p);
    was input_requests;
BEGIN
    SELECT * INTO was FROM input_requests
     WHERE tenant = n.tenant AND id = n.id AND session_id = n.session_id FOR UPDATE;
    IF was.status IS DISTINCT FROM 'open' THEN RETURN coalesce(was.status, 'withdrawn'); END IF;
    UPDATE input_requests SET status = 'answered', answer = n.answer, answered_by = n."by", answered_at = now()
     WHERE tenant = n.tenant AND id = was.id;
    PERFORM append_events('', false, n.events);
    PERFORM append_audit(n.tenant, was.conversation_id, coalesce(n.actor, n."by"), 'answer', was.session_id,
                         was.kind || ' ' || was.id, n.answer);
    RETURN NULL;
END $$;
