-- Records one check of a session's acceptance criteria, once: the verdict, the usage of the judge, its events, and the
-- message that sends the agent back, which belongs to the session from the start. `p` is an AcceptanceRecord.
CREATE OR REPLACE FUNCTION record_acceptance(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n acceptance_record := jsonb_populate_record(NULL::acceptance_record, p);
    m inbox := jsonb_populate_record(NULL::inbox, n.message);
    s sessions;
BEGIN
    SELECT * INTO s FROM sessions WHERE tenant = n.tenant AND id = n.session_id FOR UPDATE;
    PERFORM check_run(n.tenant, s.id, n.run, false, false);
    IF s.status IN ('completed', 'failed', 'cancelled')
       OR (jsonb_populate_record(NULL::acceptance_round, s.acceptance::jsonb)).round >= n.round THEN RETURN; END IF;
    UPDATE sessions SET acceptance = n.acceptance, usage = n.usage, version = greatest(version, n.version),
                        updated_at = now()
     WHERE tenant = n.tenant AND id = s.id;
    IF m.id IS NOT NULL THEN
        INSERT INTO inbox (tenant, id, conversation_id, thread_id, kind, author, parts, visible, taken_by)
        VALUES (n.tenant, m.id, s.conversation_id, s.thread_id, m.kind, m.author, m.parts, m.visible, s.id)
        ON CONFLICT DO NOTHING;
    END IF;
    PERFORM settle_budget(n.tenant, s.id, '', n.used);
    PERFORM append_events('', false, n.events);
END $$;
