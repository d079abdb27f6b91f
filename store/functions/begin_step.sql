-- Begins a model call; `p` is a StepBegin. Shows the step, and returns all that the call needs in one round trip, the
-- StepFacts of store/messages.py: the messages it takes, the results of the tool calls before it, and what the session
-- may do. A call that was committed before gets its reply.
CREATE OR REPLACE FUNCTION begin_step(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    t     text := p ->> 'tenant';
    sid   text := p ->> 'session_id';
    done  text;
    s     sessions;
BEGIN
    SELECT reply INTO done FROM messages WHERE tenant = t AND idem = p ->> 'idem';
    IF done IS NOT NULL THEN RETURN jsonb_build_object('reply', done); END IF;
    PERFORM check_run(t, sid, p ->> 'run', true, true);
    UPDATE sessions SET run_id = coalesce(p ->> 'run', run_id), version = (p ->> 'version')::bigint,
                        step = (p ->> 'step')::int,
                        -- while one line waits for people another may continue: the session is still shown as waiting
                        status = CASE WHEN EXISTS (SELECT 1 FROM input_requests r WHERE r.tenant = t AND r.session_id = sid
                                                      AND r.status = 'open') THEN 'input_required' ELSE 'working' END,
                        started_at = coalesce(started_at, now()), updated_at = now(), retry = NULL
     WHERE tenant = t AND id = sid AND version < (p ->> 'version')::bigint
       AND status NOT IN ('completed', 'failed', 'cancelled');
    IF (p ->> 'attempt')::int > 1 THEN   -- before the counters of the events, which are locked after the session
        UPDATE sessions SET retry = NULL, updated_at = now() WHERE tenant = t AND id = sid AND retry IS NOT NULL;
    END IF;
    -- lines of one session may begin at the same time, so the version does not show whether watchers know of this step
    PERFORM append_events(p ->> 'idem', (p ->> 'attempt')::int > 1, p -> 'events');
    IF (p ->> 'attempt')::int > 1 THEN PERFORM append_events('', false, p -> 'again'); END IF;
    SELECT * INTO s FROM sessions WHERE tenant = t AND id = sid;
    RETURN jsonb_build_object(
        'status', s.status, 'plan', s.plan, 'cancel_requested', s.cancel_requested, 'tools', to_jsonb(s.tools),
        'rules', s.rules, 'may_ask', s.may_ask, 'approval_required', s.approval_required, 'limits', s.limits,
        'created_at', s.created_at, 'started_at', s.started_at, 'external_tools', s.external_tools,
        'variables', s.variables, 'rerun', s.rerun, 'task_terms', s.task_terms,
        'arguments', (SELECT th.arguments FROM threads th WHERE th.tenant = t AND th.id = s.thread_id),
        'subagent', s.subagent, 'registry', child_registry(t, s.conversation_id, s.thread_id),
        'tree', (SELECT to_jsonb(b) FROM budgets b WHERE b.tenant = t AND b.conversation_id = s.conversation_id),
        'inbox', (SELECT coalesce(jsonb_agg(
                      jsonb_build_object('id', i.id, 'kind', i.kind, 'author', i.author, 'parts', CASE i.kind WHEN 'tool' THEN i.parts ELSE coalesce(i.changed, i.parts) END,
                                         'source', i.source, 'visible', i.visible) ORDER BY w.n), '[]')
                    FROM jsonb_array_elements_text(p -> 'take') WITH ORDINALITY AS w(id, n)
                    JOIN inbox i ON i.tenant = t AND i.id = w.id),
        'results', (SELECT coalesce(jsonb_agg(jsonb_build_object('index', c.call_index, 'state', c.state, 'text', c.result)
                                              ORDER BY c.call_index), '[]')
                      FROM tool_calls c WHERE c.tenant = t AND c.node = p ->> 'head'),
        'children', CASE WHEN p ->> 'purpose' = 'compact' THEN
                     (SELECT coalesce(jsonb_agg(jsonb_build_object('session_id', k.id, 'name', coalesce(k.subagent_name, k.agent))
                                                ORDER BY k.id), '[]')
                        FROM sessions k JOIN sessions parent ON parent.tenant = t AND parent.id = k.spawned_by
                       WHERE k.tenant = t AND parent.thread_id = s.thread_id AND k.live) ELSE '[]' END);
END $$;
