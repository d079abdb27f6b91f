-- Claims a tool call for one attempt. `go`: this attempt may act; else `state` and `text` are the result that exists already.
-- `spent`: the tree's budget of tool calls does not allow it, and that is its result. `dry`: it is to be
-- described only.
CREATE OR REPLACE FUNCTION claim_tool(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    t   text := p ->> 'tenant';
    c   tool_calls%ROWTYPE;
    mine integer := (p ->> 'attempt')::int;
    go  boolean := false;
    spent boolean := false;
BEGIN
    PERFORM check_run(t, p ->> 'session_id', p ->> 'run', true, false);
    IF p ->> 'effect' = 'read' THEN
        -- repeating it changes nothing, so there is nothing to claim: one write less for the commonest calls
        SELECT * INTO c FROM tool_calls WHERE tenant = t AND node = p ->> 'node' AND call_index = (p ->> 'index')::int;
        IF c.node IS NULL AND has_budget(t, p ->> 'session_id') THEN   -- but it is to be counted once
            INSERT INTO tool_calls (tenant, node, call_index, session_id, tool, effect, holder, attempt)
            VALUES (t, p ->> 'node', (p ->> 'index')::int, p ->> 'session_id', p ->> 'tool', 'read', p ->> 'holder', mine)
            ON CONFLICT DO NOTHING RETURNING * INTO c;
            IF FOUND THEN
                spent := NOT take_tool_call(t, p ->> 'session_id');
                IF spent THEN
                    UPDATE tool_calls SET state = 'failed', result = p ->> 'spent', ended_at = now()
                     WHERE tenant = t AND node = c.node AND call_index = c.call_index RETURNING * INTO c;
                END IF;
                PERFORM append_events('', false, (p -> 'called') || CASE WHEN spent THEN p -> 'refused' ELSE '[]' END);
            ELSE   -- by another attempt, in this very moment
                SELECT * INTO c FROM tool_calls
                 WHERE tenant = t AND node = p ->> 'node' AND call_index = (p ->> 'index')::int;
            END IF;
        END IF;
        RETURN (SELECT jsonb_build_object('go', c.node IS NULL OR c.state = 'started', 'emitted', c.node IS NOT NULL,
                                          'state', c.state, 'text', c.result, 'plan', s.plan, 'spent', spent,
                                          'workspace_version', w.version, 'body', m.body)
                  FROM sessions s
                  LEFT JOIN workspaces w ON w.tenant = t AND w.id = s.workspace_id
                  LEFT JOIN messages m ON m.tenant = t AND m.id = p ->> 'node'
                 WHERE s.tenant = t AND s.id = p ->> 'session_id');
    END IF;
    INSERT INTO tool_calls (tenant, node, call_index, session_id, tool, effect, holder, attempt)
    VALUES (t, p ->> 'node', (p ->> 'index')::int, p ->> 'session_id', p ->> 'tool', p ->> 'effect', p ->> 'holder', mine)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        -- a question to people has no effect; their patience has a limit of its own
        go := p ->> 'tool' = 'ask_user' OR take_tool_call(t, p ->> 'session_id');
        spent := NOT go;
        IF spent THEN
            UPDATE tool_calls SET state = 'failed', result = p ->> 'spent', ended_at = now()
             WHERE tenant = t AND node = p ->> 'node' AND call_index = (p ->> 'index')::int RETURNING * INTO c;
        END IF;
        PERFORM append_events('', false, (p -> 'called') || CASE WHEN spent THEN p -> 'refused' ELSE '[]' END);
        IF go THEN c.dry := begin_effect(p); END IF;
    ELSE
        SELECT * INTO c FROM tool_calls
         WHERE tenant = t AND node = p ->> 'node' AND call_index = (p ->> 'index')::int FOR UPDATE;
        IF c.state = 'started' AND (c.holder <> p ->> 'holder' OR c.attempt < mine) THEN
            IF c.effect = 'once' THEN
                UPDATE tool_calls SET state = 'unknown', result = p ->> 'unknown', ended_at = now()
                 WHERE tenant = t AND node = c.node AND call_index = c.call_index;
                PERFORM append_events('', false, p -> 'lost');
                PERFORM end_effect(p);
                c.state := 'unknown';
                c.result := p ->> 'unknown';
            ELSE
                UPDATE tool_calls SET holder = p ->> 'holder', attempt = mine, started_at = now()
                 WHERE tenant = t AND node = c.node AND call_index = c.call_index;
                go := true;
            END IF;
        ELSIF c.state = 'started' AND c.attempt = mine THEN
            go := true;   -- the answer to this very claim was lost; nothing has acted on it yet
        END IF;
    END IF;
    RETURN (SELECT jsonb_build_object('go', go, 'state', c.state, 'text', c.result, 'plan', s.plan, 'spent', spent,
                                      'dry', coalesce(c.dry, false),
                                      'workspace_version', w.version, 'body', m.body)
              FROM sessions s
              LEFT JOIN workspaces w ON w.tenant = t AND w.id = s.workspace_id
              LEFT JOIN messages m ON m.tenant = t AND m.id = p ->> 'node'
             WHERE s.tenant = t AND s.id = p ->> 'session_id');
END $$;
