-- Records one check of a session's acceptance criteria, once: the verdict, what judging it used, its events, and the
-- message that sends the agent back, which belongs to the session from the start. `p` is an AcceptanceRecord.
CREATE OR REPLACE FUNCTION record_acceptance(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t text := p ->> 'tenant';
    s sessions;
    c sessions := jsonb_populate_record(NULL::sessions, p);   -- the columns that the check sets
    m inbox := jsonb_populate_record(NULL::inbox, nullif(p -> 'message', 'null'));
BEGIN
    SELECT * INTO s FROM sessions WHERE tenant = t AND id = p ->> 'session_id' FOR UPDATE;
    PERFORM check_run(t, s.id, p ->> 'run', false, false);
    IF s.status IN ('completed', 'failed', 'cancelled')
       OR (s.acceptance::jsonb ->> 'round')::int >= (p ->> 'round')::int THEN RETURN; END IF;
    UPDATE sessions SET acceptance = c.acceptance, usage = c.usage, version = greatest(version, c.version),
                        updated_at = now()
     WHERE tenant = t AND id = s.id;
    IF m.id IS NOT NULL THEN
        INSERT INTO inbox (tenant, id, conversation_id, thread_id, kind, author, parts, visible, taken_by)
        VALUES (t, m.id, s.conversation_id, s.thread_id, m.kind, m.author, m.parts, m.visible, s.id)
        ON CONFLICT DO NOTHING;
    END IF;
    PERFORM settle_budget(t, s.id, '', p -> 'used');
    PERFORM append_events('', false, p -> 'events');
END $$;
