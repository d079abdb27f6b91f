-- Appends events that all belong to one session, and returns those that others are notified of, with their numbers.
-- After a session's last event nothing more is appended, so that its deltas can be deleted. Of an attempt whose call has
-- a newer one, as by a worker that was paused, pieces of a text are left out silently, because nobody waits for their
-- writer; any other event fails its transaction, and with it all that the old attempt would write.
CREATE OR REPLACE FUNCTION append_session_events(p_batch text, p_again boolean, p_rows event_row[]) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    r      event_row := p_rows[1];
    whole  bigint;     -- events of the conversation so far
    mine   bigint;     -- events of the session so far
    ended  boolean;
    ends   boolean;
    fresh  event_row[];
BEGIN
    SELECT c.last, s.last, s.closed INTO whole, mine, ended FROM event_counters c, event_counters s
     WHERE c.tenant = r.tenant AND c.scope = 'c/' || r.conversation_id
       AND s.tenant = r.tenant AND s.scope = 's/' || r.session_id;   -- the caller has locked them
    IF NOT FOUND OR ended THEN RETURN '[]'; END IF;
    fresh := ARRAY(
        SELECT p_rows[n] FROM generate_subscripts(p_rows, 1) n
         WHERE NOT EXISTS (SELECT 1 FROM call_attempts a
                            WHERE a.tenant = r.tenant AND a.session_id = r.session_id
                              AND a.call = p_rows[n].call AND a.attempt > p_rows[n].attempt)
         ORDER BY n);
    IF (SELECT count(*) FROM unnest(fresh) e WHERE NOT is_delta(e.type))
       < (SELECT count(*) FROM unnest(p_rows) e WHERE NOT is_delta(e.type)) THEN
        RAISE EXCEPTION 'A newer attempt has this call.' USING ERRCODE = 'ER003';
    END IF;
    p_rows := fresh;
    IF cardinality(p_rows) = 0 OR (p_again AND EXISTS (
            SELECT 1 FROM events WHERE tenant = r.tenant AND session_id = r.session_id AND batch = p_batch))
    THEN RETURN '[]'; END IF;
    ends := EXISTS (SELECT 1 FROM unnest(p_rows) e WHERE e.terminal);
    INSERT INTO events (tenant, session_id, seq, conversation_id, conv_seq, type, at, data, batch)
    SELECT r.tenant, r.session_id, mine + n, r.conversation_id, whole + n, p_rows[n].type, p_rows[n].at, p_rows[n].data, p_batch
      FROM generate_subscripts(p_rows, 1) n;
    UPDATE event_counters SET last = last + cardinality(p_rows), closed = closed OR (ends AND scope = 's/' || r.session_id)
     WHERE tenant = r.tenant AND scope IN ('c/' || r.conversation_id, 's/' || r.session_id);
    IF ends THEN
        DELETE FROM call_attempts WHERE tenant = r.tenant AND session_id = r.session_id;
        INSERT INTO ended_streams (tenant, session_id, ended_at) VALUES (r.tenant, r.session_id, now())
        ON CONFLICT DO NOTHING;
    END IF;
    PERFORM pg_notify('events', r.tenant || '/' || r.conversation_id || '/' || r.session_id);
    RETURN (SELECT coalesce(jsonb_agg(to_jsonb(p_rows[n]) || jsonb_build_object('seq', mine + n) ORDER BY n), '[]')
              FROM generate_subscripts(p_rows, 1) n WHERE is_notable(p_rows[n].type));
END $$;
