-- Appends a batch of events, `p_events` being EventRows, numbers them without gaps per session and per conversation,
-- and notifies their readers. A batch that is sent again after a lost result is recognised by its id.
CREATE OR REPLACE FUNCTION append_events(p_batch text, p_again boolean, p_events jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    rows    event_row[] := ARRAY(SELECT e FROM jsonb_populate_recordset(NULL::event_row, p_events) e);
    part    event_row[];
    notable jsonb := '[]';
BEGIN
    IF cardinality(rows) = 0 THEN RETURN; END IF;
    -- Lock all counters first, in sorted order, so that two batches never wait for each other.
    PERFORM 1 FROM event_counters c
      JOIN (SELECT DISTINCT e.tenant, s.scope
              FROM unnest(rows) e, LATERAL (VALUES ('s/' || e.session_id), ('c/' || e.conversation_id)) AS s(scope)) w
        ON c.tenant = w.tenant AND c.scope = w.scope
     ORDER BY c.tenant, c.scope FOR UPDATE OF c;
    FOR part IN
        SELECT array_agg(rows[n] ORDER BY n) FROM generate_subscripts(rows, 1) n
         GROUP BY rows[n].tenant, rows[n].session_id ORDER BY min(n)
    LOOP
        notable := notable || append_session_events(p_batch, p_again, part);
    END LOOP;
    IF notable <> '[]' THEN PERFORM give_notice(notable); END IF;
END $$;
