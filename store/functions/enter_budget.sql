-- A session joins its tree: the budget is set if one is given (`p_tree`, a NewBudget or null). Returns which budget is
-- spent, if that forbids another session: time, steps, tokens or money.
CREATE OR REPLACE FUNCTION enter_budget(p_tenant text, p_conversation text, p_tree jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    b budgets;
    n new_budget := jsonb_populate_record(NULL::new_budget, p_tree);
BEGIN
    IF p_tree IS NOT NULL THEN
        -- a budget that is set later also counts earlier usage
        INSERT INTO budgets (tenant, conversation_id, deadline, max_steps, max_tokens, max_cost_usd, max_tool_calls,
                             steps, tokens, cost_usd, tool_calls)
        SELECT p_tenant, p_conversation, n.deadline, n.max_steps, n.max_tokens, n.max_cost_usd, n.max_tool_calls,
               coalesce(sum(s.step), 0),
               coalesce(sum(u.input_tokens + u.output_tokens + u.cache_read_tokens + u.cache_write_tokens), 0),
               coalesce(sum(u.cost_usd), 0), coalesce(sum(u.tool_invocations), 0)
          FROM sessions s, jsonb_populate_record(NULL::usage, s.usage::jsonb) u
         WHERE s.tenant = p_tenant AND s.conversation_id = p_conversation
        ON CONFLICT (tenant, conversation_id) DO UPDATE
           SET deadline = excluded.deadline, max_steps = excluded.max_steps, max_tokens = excluded.max_tokens,
               max_cost_usd = excluded.max_cost_usd, max_tool_calls = excluded.max_tool_calls,
               low_reported = '{}';
    END IF;
    SELECT * INTO b FROM budgets WHERE tenant = p_tenant AND conversation_id = p_conversation;
    RETURN CASE WHEN b.tenant IS NULL THEN NULL
                WHEN b.deadline <= now() THEN 'time'
                WHEN b.steps >= b.max_steps THEN 'steps'
                WHEN b.tokens >= b.max_tokens THEN 'tokens'
                WHEN b.cost_usd >= b.max_cost_usd THEN 'money' END;
END $$;
