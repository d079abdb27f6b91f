-- Answers a request, once: {"answered": true}, or why not: {"status": ...} of a settled one, {"unknown": true}.
CREATE OR REPLACE FUNCTION answer_request(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    t    text := p ->> 'tenant';
    was  input_requests;
BEGIN
    SELECT * INTO was FROM input_requests
     WHERE tenant = t AND id = p ->> 'id' AND session_id = p ->> 'session_id' FOR UPDATE;
    IF was.id IS NULL THEN RETURN '{"unknown": true}'; END IF;
    IF was.status <> 'open' THEN RETURN jsonb_build_object('status', was.status); END IF;
    UPDATE input_requests SET status = 'answered', answer = p ->> 'answer', answered_by = p ->> 'by', answered_at = now()
     WHERE tenant = t AND id = was.id;
    PERFORM append_events('', false, p -> 'events');
    PERFORM append_audit(t, was.conversation_id, coalesce(p ->> 'actor', p ->> 'by'), 'answer', was.session_id, was.kind || ' ' || was.id,
                         p ->> 'answer');
    RETURN '{"answered": true}';
END $$;
