-- Begins a model call; `p` is a StepBegin. Emits the step's events and returns the StepFacts of store/messages.py: the
-- messages it takes, the results of the tool calls before it, and what the session may do. A call that was committed
-- before gets its reply.
CREATE OR REPLACE FUNCTION begin_step(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    n      step_begin := jsonb_populate_record(NULL::step_begin, p);
    done   text;
    again  boolean;   -- whether this step may have begun before
    s      sessions;
BEGIN
    SELECT reply INTO done FROM messages WHERE tenant = n.tenant AND idem = n.idem;
    IF done IS NOT NULL THEN RETURN jsonb_build_object('reply', done); END IF;
    PERFORM check_run(n.tenant, n.session_id, n.run, true, true);
    IF n.attempt > 1 THEN
        -- Once more, now that the session is locked: an earlier attempt may have committed meanwhile. None does from here on.
        SELECT reply INTO done FROM messages WHERE tenant = n.tenant AND idem = n.idem;
        IF done IS NOT NULL THEN RETURN jsonb_build_object('reply', done); END IF;
        PERFORM begin_attempt(n.tenant, n.session_id, n.idem, n.attempt);
    END IF;
    UPDATE sessions SET run_id = coalesce(n.run, run_id), version = n.version, step = n.step,
                        -- While one line waits for people another may continue; the session is still shown as waiting.
                        status = CASE WHEN EXISTS (SELECT 1 FROM input_requests r WHERE r.tenant = n.tenant
                                                      AND r.session_id = n.session_id AND r.status = 'open') THEN 'input_required' ELSE 'working' END,
                        started_at = coalesce(started_at, now()), updated_at = now(), retry = NULL
     WHERE tenant = n.tenant AND id = n.session_id AND version < n.version
       AND status NOT IN ('completed', 'failed', 'cancelled');
    again := n.attempt > 1 OR NOT FOUND;   -- lines of one session may begin in another order than their versions have
    IF n.attempt > 1 THEN   -- before the counters of events, which are always locked after the session
        UPDATE sessions SET retry = NULL, updated_at = now()
         WHERE tenant = n.tenant AND id = n.session_id AND retry IS NOT NULL;
    END IF;
    PERFORM append_events(n.idem, again, n.events);
    IF n.attempt > 1 THEN PERFORM append_events('', false, n.again); END IF;
    SELECT * INTO s FROM sessions WHERE tenant = n.tenant AND id = n.session_id;
    RETURN jsonb_build_object(
        'status', s.status, 'plan', s.plan, 'cancel_requested', s.cancel_requested, 'tools', to_jsonb(s.tools),
        'rules', s.rules, 'may_ask', s.may_ask, 'approval_required', s.approval_required, 'limits', s.limits,
        'created_at', s.created_at, 'started_at', s.started_at, 'external_tools', s.external_tools,
        'variables', s.variables, 'rerun', s.rerun, 'task_terms', s.task_terms,
        'arguments', (SELECT th.arguments FROM threads th WHERE th.tenant = n.tenant AND th.id = s.thread_id),
        'results', (SELECT coalesce(jsonb_agg(jsonb_build_object('index', c.call_index, 'state', c.state, 'text', c.result,
                                                                 'files', c.shown::jsonb) ORDER BY c.call_index), '[]')
                      FROM tool_calls c WHERE c.tenant = n.tenant AND c.node = n.head),
        'briefing', (SELECT w.briefing FROM workspaces w WHERE w.tenant = n.tenant AND w.id = s.workspace_id),
        'subagent', s.subagent, 'registry', child_registry(n.tenant, s.conversation_id, s.thread_id),
        'tree', (SELECT to_jsonb(b) FROM budgets b WHERE b.tenant = n.tenant AND b.conversation_id = s.conversation_id),
        'inbox', (SELECT coalesce(jsonb_agg(
                      jsonb_build_object('id', i.id, 'kind', i.kind, 'author', i.author,
                                         'parts', CASE i.kind WHEN 'tool' THEN i.parts ELSE coalesce(i.changed, i.parts) END,
                                         'source', i.source, 'visible', i.visible) ORDER BY w.place), '[]')
                    FROM unnest(n.take) WITH ORDINALITY AS w(id, place)
                    -- The rows decide who reads a message, and that it is read once, whatever the workflows remember.
                    JOIN inbox i ON i.tenant = n.tenant AND i.id = w.id AND NOT i.entered
                                AND coalesce(i.taken_by, n.session_id) = n.session_id),
        'children', CASE WHEN n.purpose = 'compact' THEN
                     (SELECT coalesce(jsonb_agg(jsonb_build_object('session_id', k.id, 'name', coalesce(k.subagent_name, k.agent))
                                                ORDER BY k.id), '[]')
                        FROM sessions k JOIN sessions parent ON parent.tenant = n.tenant AND parent.id = k.spawned_by
                       WHERE k.tenant = n.tenant AND parent.thread_id = s.thread_id
                         AND k.live) ELSE '[]' END);
END $$;
