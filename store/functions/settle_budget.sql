-- Takes the usage of a call from the tree's budget, if it has one, and drops the call's reservation. An event is
-- emitted once when a fifth or less is left of a limit, as in `Share` of domain/limits.py.
CREATE OR REPLACE FUNCTION settle_budget(p_tenant text, p_session text, p_line text, p_used budget_use) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    b   budgets;
    low jsonb;
BEGIN
    UPDATE budgets SET steps = steps + p_used.steps, tokens = tokens + p_used.tokens,
                       cost_usd = cost_usd + coalesce(p_used.cost_usd, 0),   -- an unknown price counts as nothing
                       tool_calls = tool_calls + p_used.tool_calls
     WHERE tenant = p_tenant
       AND conversation_id = (SELECT conversation_id FROM sessions WHERE tenant = p_tenant AND id = p_session)
    RETURNING * INTO b;
    IF b.tenant IS NULL THEN RETURN; END IF;
    DELETE FROM reservations WHERE tenant = p_tenant AND session_id = p_session AND line = p_line;
    SELECT jsonb_agg(jsonb_build_object('budget', name, 'limit', most, 'left', greatest(most - used, 0))) INTO low
      FROM (VALUES ('steps', b.max_steps::double precision, b.steps::double precision), ('tokens', b.max_tokens, b.tokens),
                   ('cost_usd', b.max_cost_usd, b.cost_usd), ('tool_calls', b.max_tool_calls, b.tool_calls)) AS v(name, most, used)
     WHERE most - used <= most / 5 AND NOT name = ANY (b.low_reported);
    IF low IS NULL THEN RETURN; END IF;
    UPDATE budgets SET low_reported = low_reported || ARRAY(SELECT one ->> 'budget' FROM jsonb_array_elements(low) one)
     WHERE tenant = p_tenant AND conversation_id = b.conversation_id;
    PERFORM append_events('', false, (
        SELECT jsonb_agg(jsonb_build_object(
                   'tenant', p_tenant, 'session_id', p_session, 'conversation_id', b.conversation_id, 'type', 'budget_low',
                   'terminal', false, 'at', now(), 'data', (jsonb_build_object('scope', 'tree') || one)::text))
          FROM jsonb_array_elements(low) one));
END $$;
