-- Whether a session's tree has a budget.
CREATE OR REPLACE FUNCTION has_budget(p_tenant text, p_session text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT 1 FROM budgets WHERE tenant = p_tenant
                      AND conversation_id = (SELECT conversation_id FROM sessions WHERE tenant = p_tenant AND id = p_session))
$$;
