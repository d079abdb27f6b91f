-- Those of a session's events that may be written: not of an attempt whose call has a newer one, as by a worker that was
-- paused. Pieces of a text and `tool_called` are left out silently, because nobody waits for their writer; any other
-- event fails its transaction, and with it all that the old attempt would write. `tool_called` is stored under the name
-- of its call: a later attempt emits it only if no earlier one did. The caller has locked the session's counter.
CREATE OR REPLACE FUNCTION current_events(p_rows event_row[], p_again boolean) RETURNS event_row[] LANGUAGE plpgsql AS $$
DECLARE
    r event_row := p_rows[1];
BEGIN
    IF EXISTS (SELECT 1 FROM call_attempts a JOIN unnest(p_rows) e ON e.call = a.call AND e.attempt < a.attempt
                WHERE a.tenant = r.tenant AND a.session_id = r.session_id
                  AND NOT is_delta(e.type) AND e.type <> 'tool_called') THEN
        RAISE EXCEPTION 'A newer attempt has this call.' USING ERRCODE = 'ER003';
    END IF;
    RETURN ARRAY(
        SELECT p_rows[n] FROM generate_subscripts(p_rows, 1) n
         WHERE NOT EXISTS (SELECT 1 FROM call_attempts a
                            WHERE a.tenant = r.tenant AND a.session_id = r.session_id
                              AND a.call = p_rows[n].call AND a.attempt > p_rows[n].attempt)
           AND NOT (p_rows[n].type = 'tool_called' AND (p_again OR p_rows[n].attempt > 1) AND EXISTS (
                        SELECT 1 FROM events e WHERE e.tenant = r.tenant AND e.session_id = r.session_id
                           AND e.type = 'tool_called' AND e.batch = p_rows[n].call))
         ORDER BY n);
END $$;
