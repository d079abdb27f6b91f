-- Claims a tool call for one attempt; `p` is a ToolClaim. `go`: this attempt may run the call; else `state` and `text`
-- are the existing result. `spent`: the tree's budget of tool calls is spent, and that is the result. `dry`: the call
-- must only be described.
CREATE OR REPLACE FUNCTION claim_tool(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    n     tool_claim := jsonb_populate_record(NULL::tool_claim, p);
    c     tool_calls;   -- the recorded call
    go    boolean := false;
    spent boolean := false;
    again boolean := false;   -- an earlier attempt may have begun it
    b     budgets;
BEGIN
    PERFORM check_run(n.tenant, n.session_id, n.run, true, false);
    INSERT INTO tool_calls (tenant, node, call_index, session_id, tool, effect, holder, attempt)
    VALUES (n.tenant, n.node, n.call_index, n.session_id, n.tool, n.effect, n.holder, n.attempt)
    ON CONFLICT DO NOTHING RETURNING * INTO c;
    IF FOUND THEN
        IF NOT n.asks THEN   -- a question to people has a separate limit, and a check is not the agent's
            SELECT * INTO b FROM budgets WHERE tenant = n.tenant
               AND conversation_id = (SELECT conversation_id FROM sessions WHERE tenant = n.tenant AND id = n.session_id) FOR UPDATE;
            spent := coalesce(b.tool_calls >= b.max_tool_calls, false);
            IF NOT spent THEN PERFORM settle_budget(n.tenant, n.session_id, '', (0, 0, NULL, 1)); END IF;
        END IF;
        go := NOT spent;
        IF spent THEN
            UPDATE tool_calls SET state = 'failed', result = n.spent, ended_at = now()
             WHERE tenant = c.tenant AND node = c.node AND call_index = c.call_index RETURNING * INTO c;
        END IF;
        PERFORM append_events('', false, with_arguments(n.called, n.tenant, n.node, n.call_index) || CASE WHEN spent THEN n.refused ELSE '[]' END);
        IF go AND n.effect <> 'read' AND n.kind IS NOT NULL THEN
            c.dry := begin_effect(c, n.kind, n.description, n.withheld, n.actor, n.command);
        END IF;
    ELSE
        SELECT * INTO c FROM tool_calls
         WHERE tenant = n.tenant AND node = n.node AND call_index = n.call_index FOR UPDATE;
        IF c.state <> 'started' OR (c.holder = n.holder AND c.attempt > n.attempt) THEN
            go := false;   -- it has a result, or a newer attempt holds it
        ELSIF c.holder = n.holder AND c.attempt = n.attempt THEN
            go := true;   -- the result of this very claim was lost, and nobody has acted on it yet
        ELSIF c.effect = 'once' AND c.remote IS NULL THEN   -- where a handle is known, so will be the outcome
            UPDATE tool_calls SET state = 'unknown', result = n.unknown, ended_at = now()
             WHERE tenant = c.tenant AND node = c.node AND call_index = c.call_index RETURNING * INTO c;
            PERFORM append_events('', false, n.lost);
            PERFORM end_effect(c, n.actor, false, NULL);
        ELSE
            UPDATE tool_calls SET holder = n.holder, attempt = n.attempt,
                                  started_at = CASE WHEN remote IS NULL THEN now() ELSE started_at END
             WHERE tenant = c.tenant AND node = c.node AND call_index = c.call_index;
            go := true;
            again := true;
        END IF;
    END IF;
    IF go THEN PERFORM begin_attempt(n.tenant, n.session_id, n.holder, n.attempt); END IF;
    RETURN (SELECT jsonb_build_object('go', go, 'state', c.state, 'text', c.result, 'plan', s.plan, 'spent', spent, 'again', again,
                                      'dry', coalesce(c.dry, false), 'remote', c.remote, 'usage', c.usage,
                                      'workspace_version', w.version, 'body', m.body, 'variables', s.variables,
                                      'environment', CASE WHEN w.tree IS NOT NULL THEN s.spec::jsonb #>> '{config,environment}' END)
              FROM sessions s
              LEFT JOIN workspaces w ON w.tenant = s.tenant AND w.id = s.workspace_id
              LEFT JOIN messages m ON m.tenant = s.tenant AND m.id = n.node
             WHERE s.tenant = n.tenant AND s.id = n.session_id);
END $$;
