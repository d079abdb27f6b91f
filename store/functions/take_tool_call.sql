-- Takes one tool call from the tree's budget, if it has one. False: the budget is spent, and the call must not run.
CREATE OR REPLACE FUNCTION take_tool_call(p_tenant text, p_session text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    b budgets;
BEGIN
    SELECT * INTO b FROM budgets WHERE tenant = p_tenant
       AND conversation_id = (SELECT conversation_id FROM sessions WHERE tenant = p_tenant AND id = p_session) FOR UPDATE;
    IF b.tenant IS NULL THEN RETURN true; END IF;
    IF b.tool_calls >= b.max_tool_calls THEN RETURN false; END IF;
    PERFORM settle_budget(p_tenant, p_session, '', (0, 0, NULL, 1));
    RETURN true;
END $$;
