-- Those of a session's events that may be written: not of an attempt whose call has a newer one, as by a worker that was
-- paused. Pieces of a text are left out silently, because nobody waits for their writer; any other event fails its
-- transaction, and with it all that the old attempt would write. The caller has locked the session's counter.
CREATE OR REPLACE FUNCTION current_events(p_rows event_row[]) RETURNS event_row[] LANGUAGE plpgsql AS $$
DECLARE
    r       event_row := p_rows[1];
    current event_row[];
BEGIN
    current := ARRAY(
        SELECT p_rows[n] FROM generate_subscripts(p_rows, 1) n
         WHERE NOT EXISTS (SELECT 1 FROM call_attempts a
                            WHERE a.tenant = r.tenant AND a.session_id = r.session_id
                              AND a.call = p_rows[n].call AND a.attempt > p_rows[n].attempt)
         ORDER BY n);
    IF cardinality(current) < (SELECT count(*) FROM unnest(p_rows) e WHERE NOT is_delta(e.type))
       + (SELECT count(*) FROM unnest(current) e WHERE is_delta(e.type)) THEN
        RAISE EXCEPTION 'A newer attempt has this call.' USING ERRCODE = 'ER003';
    END IF;
    RETURN current;
END $$;
