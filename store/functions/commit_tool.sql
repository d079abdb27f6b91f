-- Records the result of a tool call, if this attempt still holds the claim; false means it was superseded.
CREATE OR REPLACE FUNCTION commit_tool(p jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    t text := p ->> 'tenant';
BEGIN
    PERFORM check_run(t, p ->> 'session_id', p ->> 'run', false, false);
    IF p ->> 'effect' = 'read' THEN
        INSERT INTO tool_calls (tenant, node, call_index, session_id, tool, effect, holder, attempt, state, result,
                                sources, description, started_at, ended_at)
        VALUES (t, p ->> 'node', (p ->> 'index')::int, p ->> 'session_id', p ->> 'tool', 'read', p ->> 'holder',
                (p ->> 'attempt')::int, p ->> 'state', p ->> 'text',
                coalesce(p ->> 'sources', '[]'), coalesce(p ->> 'description', ''),
                coalesce((p ->> 'started_at')::timestamptz, now()), now())
        ON CONFLICT (tenant, node, call_index) DO UPDATE
           SET state = excluded.state, result = excluded.result, sources = excluded.sources,
               description = excluded.description, ended_at = excluded.ended_at
         WHERE tool_calls.state = 'started';   -- where a budget counts, even a read is claimed
        IF FOUND THEN
            PERFORM append_events('', false, p -> 'events');
            PERFORM end_effect(p);
        END IF;
        RETURN true;
    END IF;
    UPDATE tool_calls SET state = p ->> 'state', result = p ->> 'text', ended_at = now(),
                          sources = coalesce(p ->> 'sources', sources),
                          description = coalesce(p ->> 'description', description)
     WHERE tenant = t AND node = p ->> 'node' AND call_index = (p ->> 'index')::int
       AND holder = p ->> 'holder' AND attempt = (p ->> 'attempt')::int AND state = 'started';
    IF NOT FOUND THEN
        RETURN EXISTS (SELECT 1 FROM tool_calls WHERE tenant = t AND node = p ->> 'node'
                          AND call_index = (p ->> 'index')::int AND holder = p ->> 'holder'
                          AND attempt = (p ->> 'attempt')::int AND state = p ->> 'state');
    END IF;
    UPDATE sessions SET plan = coalesce(p ->> 'plan', plan), progress = coalesce(p ->> 'progress', progress),
                        status_text = coalesce(p ->> 'status_text', status_text), updated_at = now()
     WHERE tenant = t AND id = p ->> 'session_id' AND status NOT IN ('completed', 'failed', 'cancelled')
       AND (p ->> 'plan' IS NOT NULL OR p ->> 'progress' IS NOT NULL);
    IF p ->> 'handed_to' IS NOT NULL THEN   -- another agent has the session and its thread from here on
        UPDATE sessions SET handed_to = p ->> 'handed_to', updated_at = now()
         WHERE tenant = t AND id = p ->> 'session_id' AND status NOT IN ('completed', 'failed', 'cancelled');
        UPDATE threads SET agent = (p ->> 'handed_to')::jsonb #>> '{agent,name}'
         WHERE tenant = t AND id = (SELECT thread_id FROM sessions WHERE tenant = t AND id = p ->> 'session_id');
    END IF;
    INSERT INTO files (tenant, id, sha256, size, name, media_type, type, description, url, session_id)
    SELECT t, f.id, f.sha256, f.size, f.name, f.media_type, f.type, f.description, f.url, p ->> 'session_id'
      FROM jsonb_populate_recordset(NULL::files, p -> 'files') f
    ON CONFLICT DO NOTHING;
    PERFORM append_events('', false, p -> 'events');
    PERFORM end_effect(p);
    RETURN true;
END $$;
