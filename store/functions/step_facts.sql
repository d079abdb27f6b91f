-- What a model call needs to know about its session, except for the messages it takes: part of the StepFacts of
-- store/messages.py. `p_head` is the message whose tool calls have
-- ended; NULL: its results are not asked for.
CREATE OR REPLACE FUNCTION step_facts(p_tenant text, p_session text, p_head text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    s sessions;
BEGIN
    SELECT * INTO s FROM sessions WHERE tenant = p_tenant AND id = p_session;
    RETURN jsonb_build_object(
        'status', s.status, 'plan', s.plan, 'cancel_requested', s.cancel_requested, 'tools', to_jsonb(s.tools),
        'rules', s.rules, 'may_ask', s.may_ask, 'approval_required', s.approval_required, 'limits', s.limits,
        'created_at', s.created_at, 'started_at', s.started_at, 'external_tools', s.external_tools,
        'variables', s.variables, 'rerun', s.rerun, 'task_terms', s.task_terms,
        'arguments', (SELECT th.arguments FROM threads th WHERE th.tenant = p_tenant AND th.id = s.thread_id),
        'results', (SELECT coalesce(jsonb_agg(jsonb_build_object('index', c.call_index, 'state', c.state, 'text', c.result)
                                              ORDER BY c.call_index), '[]')
                      FROM tool_calls c WHERE c.tenant = p_tenant AND c.node = p_head),
        'subagent', s.subagent, 'registry', child_registry(p_tenant, s.conversation_id, s.thread_id),
        'tree', (SELECT to_jsonb(b) FROM budgets b WHERE b.tenant = p_tenant AND b.conversation_id = s.conversation_id));
END $$;
