-- Accepts a session: row, thread, input, counters, first event and idempotency record, all or nothing. It may also
-- claim mailbox messages for the session it opens, and it may wait in the thread's queue.
-- Answers {} or one of: {"replay"}, {"reused"}, {"quota"}, {"busy": live session}, {"terminated"}, {"unknown"},
-- {"mail_taken"}: some message was claimed by another session meanwhile, {"cancelled"}: what spawns it has ended, or the
-- tree it would belong to was cancelled, {"budget": what of the tree's is spent}.
CREATE OR REPLACE FUNCTION accept_session(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    t      text  := p ->> 'tenant';
    s      jsonb := p -> 'session';
    idem   jsonb := p -> 'idempotency';
    queued boolean := coalesce((p ->> 'queue')::boolean, false);
    known  idempotency%ROWTYPE;
    conv   conversations%ROWTYPE;
    before sessions%ROWTYPE;
    above  sessions%ROWTYPE;
    up     text := CASE WHEN (p ->> 'spawns')::boolean THEN s ->> 'spawned_by' END;
    n      bigint;
    spent  text;
    refused jsonb;
BEGIN
    IF idem IS NOT NULL AND idem <> 'null'::jsonb THEN
        LOOP
            INSERT INTO idempotency (tenant, key, digest, status, response)
            VALUES (t, idem ->> 'key', idem ->> 'digest', (idem ->> 'status')::int, idem ->> 'response')
            ON CONFLICT DO NOTHING;
            EXIT WHEN FOUND;
            SELECT * INTO known FROM idempotency WHERE tenant = t AND key = idem ->> 'key';
            CONTINUE WHEN NOT FOUND;   -- it was removed in this very moment
            IF known.digest <> idem ->> 'digest' THEN RETURN '{"reused": true}'; END IF;
            RETURN jsonb_build_object('replay', jsonb_build_object('status', known.status, 'response', known.response));
        END LOOP;
    END IF;
    IF EXISTS (SELECT 1 FROM sessions WHERE tenant = t AND id = s ->> 'id') THEN
        RETURN '{}';   -- this very session was accepted before; the answer was lost
    END IF;
    BEGIN
        IF (p ->> 'live_quota') IS NOT NULL THEN
            -- one submission of a key at a time, so that two cannot both take the last place
            PERFORM pg_advisory_xact_lock(hashtextextended(t || '/' || (s ->> 'created_by'), 1));
            SELECT count(*) INTO n FROM sessions
             WHERE tenant = t AND created_by = s ->> 'created_by' AND status IN ('submitted', 'working', 'input_required');
            IF n >= (p ->> 'live_quota')::bigint THEN
                refused := jsonb_build_object('quota', n);
                RAISE EXCEPTION 'refused';
            END IF;
        END IF;
        -- the locks let a cancel of the tree either be seen here, or find this child; sessions are locked before their
        -- conversation, as everywhere
        WHILE up IS NOT NULL LOOP
            SELECT * INTO above FROM sessions WHERE tenant = t AND id = up FOR SHARE;
            IF above.cancel_requested::jsonb ->> 'scope' = 'tree'
               OR (up = s ->> 'spawned_by' AND above.status IN ('completed', 'failed', 'cancelled')) THEN
                refused := '{"cancelled": true}';
                RAISE EXCEPTION 'refused';
            END IF;
            up := above.spawned_by;
        END LOOP;
        IF s ->> 'conversation_id' = s ->> 'id' THEN
            INSERT INTO conversations (tenant, id, title, delivery, metadata)
            VALUES (t, s ->> 'id', s ->> 'title', p ->> 'delivery', coalesce(p -> 'metadata', '{}'));
        ELSE
            SELECT * INTO conv FROM conversations WHERE tenant = t AND id = s ->> 'conversation_id' FOR NO KEY UPDATE;
            IF conv.id IS NULL THEN
                refused := '{"unknown": true}';
                RAISE EXCEPTION 'refused';
            ELSIF conv.status = 'terminated' THEN
                refused := '{"terminated": true}';
                RAISE EXCEPTION 'refused';
            END IF;
            IF (p ->> 'in_order')::boolean AND NOT queued THEN
                -- nobody overtakes what waits, also in the moment between two turns; the newest are those that wait
                SELECT jsonb_build_object('busy', id) INTO refused
                  FROM (SELECT id, live, status FROM sessions
                         WHERE tenant = t AND thread_id = s ->> 'thread_id' ORDER BY id DESC LIMIT 100) newest
                 WHERE NOT live AND status = 'submitted'
                   AND NOT EXISTS (SELECT 1 FROM sessions WHERE tenant = t AND thread_id = s ->> 'thread_id' AND live)
                 ORDER BY id LIMIT 1;
                IF refused IS NOT NULL THEN RAISE EXCEPTION 'refused'; END IF;
            END IF;
        END IF;
        spent := enter_budget(t, s ->> 'conversation_id', p -> 'tree');
        -- what wakes by itself is let in, and ends at its first call with a word about why
        IF spent IS NOT NULL AND s ->> 'trigger' <> 'async_subagent_result' THEN
            refused := jsonb_build_object('budget', spent);
            RAISE EXCEPTION 'refused';
        END IF;
        IF NOT queued AND s ->> 'conversation_id' <> s ->> 'id' THEN
            -- whoever ends a session has locked the conversation too, so what is live here stays so until we are done
            SELECT jsonb_build_object('busy', id) INTO refused FROM sessions
             WHERE tenant = t AND thread_id = s ->> 'thread_id' AND live;
            IF refused IS NOT NULL THEN RAISE EXCEPTION 'refused'; END IF;
        END IF;
        INSERT INTO threads (tenant, id, conversation_id, parent_thread_id, name, agent, depth)
        VALUES (t, s ->> 'thread_id', s ->> 'conversation_id', s ->> 'parent_thread_id',
                coalesce(s ->> 'thread_name', s ->> 'agent'), s ->> 'agent', coalesce((s ->> 'depth')::int, 0))
        ON CONFLICT (tenant, id) DO NOTHING;
        -- a continuation goes on from the newest session of its thread that has something to go on from
        SELECT * INTO before FROM sessions
         WHERE tenant = t AND thread_id = s ->> 'thread_id' AND committed ORDER BY ended_at DESC LIMIT 1;
        INSERT INTO sessions (tenant, id, conversation_id, thread_id, workspace_id, parent_session_id, session_type,
                              spawned_by, trigger, agent_owner, agent, agent_version, models, title, spec, limits, deadline,
                              base_head, inbox, head, created_by, created_at, updated_at, live, depth, delivery, blocking, await_children,
                              subagent_name, rules, may_ask, approval_required, external_tools, variables, missing, dry_run,
                              retention_ms, tools)
        SELECT t, s ->> 'id', s ->> 'conversation_id', s ->> 'thread_id', s ->> 'workspace_id',
               coalesce(s ->> 'parent_session_id', before.id), s ->> 'session_type', s ->> 'spawned_by', s ->> 'trigger',
               s ->> 'agent_owner', s ->> 'agent', (s ->> 'agent_version')::int,
               ARRAY(SELECT jsonb_array_elements_text(s -> 'models')), s ->> 'title', s ->> 'spec', s ->> 'limits',
               least((s ->> 'deadline')::timestamptz,
                     (SELECT deadline FROM budgets WHERE tenant = t AND conversation_id = s ->> 'conversation_id')),
               coalesce(s ->> 'base_head', before.head),
               ARRAY(SELECT jsonb_array_elements_text(coalesce(p -> 'take', '[]')))
                   || ARRAY(SELECT m ->> 'id' FROM jsonb_array_elements(p -> 'inbox') m),
               coalesce(s ->> 'base_head', before.head), s ->> 'created_by',
               -- the clock, not the transaction: siblings of one step are told apart by it
               coalesce((s ->> 'created_at')::timestamptz, clock_timestamp()), clock_timestamp(), NOT queued,
               coalesce((s ->> 'depth')::int, 0), s ->> 'delivery', coalesce((s ->> 'blocking')::boolean, false),
               coalesce((s ->> 'await_children')::boolean, true), s ->> 'subagent_name',
               coalesce(s ->> 'rules', '[]'), coalesce((s ->> 'may_ask')::boolean, false),
               coalesce((s ->> 'approval_required')::boolean, false), coalesce(s ->> 'external_tools', '[]'),
               coalesce(s ->> 'variables', '{}'), coalesce(s ->> 'missing', '{}'),
               coalesce((s ->> 'dry_run')::boolean, false), coalesce((s ->> 'retention_ms')::bigint, 2592000000),
               CASE WHEN jsonb_typeof(s -> 'tools') = 'array' THEN ARRAY(SELECT jsonb_array_elements_text(s -> 'tools')) END;
        INSERT INTO inbox (tenant, id, conversation_id, thread_id, kind, author, parts, taken_by)
        SELECT t, m ->> 'id', s ->> 'conversation_id', s ->> 'thread_id', m ->> 'kind', m ->> 'author', m ->> 'parts', s ->> 'id'
          FROM jsonb_array_elements(p -> 'inbox') m;
        INSERT INTO file_uses (tenant, file_id, session_id)
        SELECT DISTINCT t, f, s ->> 'id'
          FROM jsonb_array_elements_text(coalesce((s ->> 'spec')::jsonb #> '{context,files}', '[]')) f;
        UPDATE inbox SET taken_by = s ->> 'id'
         WHERE tenant = t AND id IN (SELECT jsonb_array_elements_text(coalesce(p -> 'take', '[]')));
        INSERT INTO event_counters (tenant, scope)
        VALUES (t, 's/' || (s ->> 'id')), (t, 'c/' || (s ->> 'conversation_id')) ON CONFLICT DO NOTHING;
        INSERT INTO workspaces (tenant, id, version, manifest)
        VALUES (t, s ->> 'workspace_id', CASE WHEN coalesce(s ->> 'manifest', '{}') = '{}' THEN 0 ELSE 1 END,
                coalesce(s ->> 'manifest', '{}'))
        ON CONFLICT DO NOTHING;
        IF jsonb_typeof(p -> 'mail') = 'array' THEN
            UPDATE mailbox SET delivered_to = s ->> 'id'
             WHERE tenant = t AND delivered_to IS NULL AND message_id IN (SELECT jsonb_array_elements_text(p -> 'mail'));
            GET DIAGNOSTICS n = ROW_COUNT;
            IF n <> jsonb_array_length(p -> 'mail') THEN
                refused := '{"mail_taken": true}';
                RAISE EXCEPTION 'refused';
            END IF;
        END IF;
        PERFORM tell(t, s ->> 'conversation_id', p -> 'events');
        PERFORM append_audit(t, s ->> 'conversation_id',
            CASE WHEN s ->> 'spawned_by' IS NOT NULL THEN 'session ' || (s ->> 'spawned_by')
                 WHEN s ->> 'trigger' <> 'async_subagent_result' THEN s ->> 'created_by' END,   -- nobody asked for a wake
            'submit', s ->> 'id', s ->> 'trigger',
            (s ->> 'spec') || coalesce((SELECT string_agg(m ->> 'parts', '' ORDER BY place)
                                          FROM jsonb_array_elements(p -> 'inbox') WITH ORDINALITY AS x(m, place)), ''));
    EXCEPTION
        WHEN unique_violation THEN
            SELECT jsonb_build_object('busy', id) INTO refused FROM sessions
             WHERE tenant = t AND thread_id = s ->> 'thread_id' AND live;
            IF refused IS NULL THEN RAISE; END IF;
        WHEN raise_exception THEN
            IF refused IS NULL THEN RAISE; END IF;
    END;
    IF refused IS NOT NULL THEN
        DELETE FROM idempotency WHERE tenant = t AND key = idem ->> 'key';  -- a refused request leaves nothing
        RETURN refused;
    END IF;
    UPDATE conversations SET updated_at = now() WHERE tenant = t AND id = s ->> 'conversation_id';
    RETURN '{}';
END $$;
