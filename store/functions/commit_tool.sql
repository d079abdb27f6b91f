-- Commits the result of a tool call, if this attempt still holds the claim; false: a newer one does. `p` is a
-- ToolCommit. Event counters are locked before an audit chain.
CREATE OR REPLACE FUNCTION commit_tool(p jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    n tool_commit := jsonb_populate_record(NULL::tool_commit, p);
    c tool_calls;
BEGIN
    PERFORM check_run(n.tenant, n.session_id, n.run, false, false);
    UPDATE tool_calls SET state = n.state, result = n.result, ended_at = now(),
                          sources = n.sources, shown = n.shown, usage = n.usage, description = coalesce(nullif(n.description, ''), description)
     WHERE tenant = n.tenant AND node = n.node AND call_index = n.call_index
       AND holder = n.holder AND attempt = n.attempt AND state = 'started' RETURNING * INTO c;
    IF NOT FOUND THEN   -- it was written before and the answer was lost, or a newer attempt holds it
        RETURN EXISTS (SELECT 1 FROM tool_calls
                        WHERE tenant = n.tenant AND node = n.node AND call_index = n.call_index
                          AND holder = n.holder AND attempt = n.attempt AND state = n.state);
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
    IF n.files <> '[]' THEN
        INSERT INTO files (tenant, id, sha256, size, name, media_type, type, description, url, path, session_id)
        SELECT n.tenant, f.id, f.sha256, f.size, f.name, f.media_type, f.type, f.description, f.url, f.path, n.session_id
          FROM jsonb_populate_recordset(NULL::files, n.files) f
        ON CONFLICT DO NOTHING;
    END IF;
    IF n.usage IS NOT NULL THEN PERFORM settle_budget(n.tenant, n.session_id, '', n.used); END IF;
    PERFORM append_events('', false, n.events);
    PERFORM end_effect(c, n.actor, n.denied, n.rule);
    RETURN true;
END $$;
