-- Numbers a batch of events without gaps, per session and per conversation, and wakes the readers.
-- Counters are locked in sorted order, so two batches can never wait for each other.
-- A batch sent again after a lost answer is recognised by its id.
CREATE OR REPLACE FUNCTION append_events(p_batch text, p_again boolean, p_events jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    first jsonb := p_events -> 0;
    woken bigint;
    notable jsonb;
BEGIN
    IF first IS NULL THEN RETURN; END IF;
    PERFORM 1 FROM event_counters c
      JOIN (SELECT DISTINCT e ->> 'tenant' AS tenant, s.scope
              FROM jsonb_array_elements(p_events) e,
                   LATERAL (VALUES ('s/' || (e ->> 'session_id')), ('c/' || (e ->> 'conversation_id'))) AS s(scope)) w
        ON c.tenant = w.tenant AND c.scope = w.scope
     ORDER BY c.tenant, c.scope FOR UPDATE OF c;
    IF p_again AND EXISTS (SELECT 1 FROM events
                            WHERE tenant = first ->> 'tenant' AND session_id = first ->> 'session_id' AND batch = p_batch)
    THEN RETURN; END IF;
    WITH wanted AS (
        SELECT e ->> 'tenant' AS tenant, e ->> 'session_id' AS session_id, e ->> 'conversation_id' AS conversation_id,
               e ->> 'type' AS type, (e ->> 'at')::timestamptz AS at, e ->> 'data' AS data,
               coalesce((e ->> 'terminal')::boolean, false) AS terminal, n
          FROM jsonb_array_elements(p_events) WITH ORDINALITY AS x(e, n)
    ), numbered AS (
        SELECT w.*, s.last + row_number() OVER (PARTITION BY w.tenant, w.session_id ORDER BY n) AS seq,
               c.last + row_number() OVER (PARTITION BY w.tenant, w.conversation_id ORDER BY n) AS conv_seq
          FROM wanted w
          JOIN event_counters s ON s.tenant = w.tenant AND s.scope = 's/' || w.session_id AND NOT s.closed
          JOIN event_counters c ON c.tenant = w.tenant AND c.scope = 'c/' || w.conversation_id
    ), written AS (
        INSERT INTO events (tenant, session_id, seq, conversation_id, conv_seq, type, at, data, batch)
        SELECT tenant, session_id, seq, conversation_id, conv_seq, type, at, data, p_batch FROM numbered ORDER BY n
    ), heads AS (
        SELECT tenant, 's/' || session_id AS scope, max(seq) AS last, bool_or(terminal) AS closed
          FROM numbered GROUP BY 1, 2
        UNION ALL
        SELECT tenant, 'c/' || conversation_id, max(conv_seq), false FROM numbered GROUP BY 1, 2
    ), counted AS (
        UPDATE event_counters c SET last = h.last, closed = c.closed OR h.closed
          FROM heads h WHERE c.tenant = h.tenant AND c.scope = h.scope
    )
    -- counted, because a plain SELECT … INTO would stop after its first row and wake one session of the batch only
    SELECT count(pg_notify('events', tenant || '/' || conversation_id || '/' || session_id)),
           (SELECT jsonb_agg(to_jsonb(e) ORDER BY e.n) FROM numbered e WHERE is_notable(e.type))
      FROM (SELECT DISTINCT tenant, conversation_id, session_id FROM numbered) d INTO woken, notable;
    IF notable IS NOT NULL THEN PERFORM give_notice(notable); END IF;
END $$;
