-- Records the result of a tool call. The caller has checked the run; afterwards it appends `events` and then ends the
-- effect of the call `c`, because event counters are locked before an audit chain. Without a call it was recorded before;
-- without events a newer attempt holds the claim.
CREATE OR REPLACE FUNCTION record_tool(n tool_commit, OUT events jsonb, OUT c tool_calls) LANGUAGE plpgsql AS $$
BEGIN
    events := '[]';
    IF n.effect = 'read' THEN
        INSERT INTO tool_calls (tenant, node, call_index, session_id, tool, effect, holder, attempt, state, result,
                                sources, description, started_at, ended_at)
        VALUES (n.tenant, n.node, n.call_index, n.session_id, n.tool, n.effect, n.holder, n.attempt, n.state, n.result,
                n.sources, n.description, n.started_at, now())
        ON CONFLICT (tenant, node, call_index) DO UPDATE
           SET state = excluded.state, result = excluded.result, sources = excluded.sources,
               description = excluded.description, ended_at = excluded.ended_at
         WHERE tool_calls.state = 'started'   -- with a budget of tool calls even a read is claimed
        RETURNING * INTO c;
        IF NOT FOUND THEN RETURN; END IF;
    ELSE
        UPDATE tool_calls SET state = n.state, result = n.result, ended_at = now(),
                              sources = n.sources, description = coalesce(nullif(n.description, ''), description)
         WHERE tenant = n.tenant AND node = n.node AND call_index = n.call_index
           AND holder = n.holder AND attempt = n.attempt AND state = 'started' RETURNING * INTO c;
        IF NOT FOUND THEN   -- it was written before and the result was lost, or a newer attempt holds it
            IF NOT EXISTS (SELECT 1 FROM tool_calls
                            WHERE tenant = n.tenant AND node = n.node AND call_index = n.call_index
                              AND holder = n.holder AND attempt = n.attempt AND state = n.state) THEN
                events := NULL;
            END IF;
            RETURN;
        END IF;
        UPDATE sessions SET plan = coalesce(n.plan, plan), progress = coalesce(n.progress, progress),
                            status_text = coalesce(n.status_text, status_text), updated_at = now()
         WHERE tenant = n.tenant AND id = n.session_id AND status NOT IN ('completed', 'failed', 'cancelled')
           AND coalesce(n.plan, n.progress, n.status_text) IS NOT NULL;
        IF n.handed_to IS NOT NULL THEN   -- from here on another agent runs the session and its thread
            UPDATE sessions SET handed_to = n.handed_to, updated_at = now()
             WHERE tenant = n.tenant AND id = n.session_id AND status NOT IN ('completed', 'failed', 'cancelled');
            UPDATE threads SET agent = (jsonb_populate_record(NULL::successor, n.handed_to::jsonb)).agent.name
             WHERE tenant = n.tenant
               AND id = (SELECT thread_id FROM sessions WHERE tenant = n.tenant AND id = n.session_id);
        END IF;
    END IF;
    IF n.files <> '[]' THEN
        INSERT INTO files (tenant, id, sha256, size, name, media_type, type, description, url, path, session_id)
        SELECT n.tenant, f.id, f.sha256, f.size, f.name, f.media_type, f.type, f.description, f.url, f.path, n.session_id
          FROM jsonb_populate_recordset(NULL::files, n.files) f
        ON CONFLICT DO NOTHING;
    END IF;
    events := coalesce(n.events, '[]');
END $$;
