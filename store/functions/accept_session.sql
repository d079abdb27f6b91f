-- Accepts a session: row, thread, input, counters, first event and idempotency record, all or nothing. It may also
-- claim mailbox messages for the session, and the session may wait in its thread's queue. `p` is an Acceptance, see
-- domain/sessions/writes.py.
-- Returns {"session": the row}, or one reason for a refusal, as in `Accepted` of store/sessions.py.
CREATE OR REPLACE FUNCTION accept_session(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    a      acceptance := jsonb_populate_record(NULL::acceptance, p);
    s      sessions := jsonb_populate_record(NULL::sessions, a.session);
    task   submitted_task := jsonb_populate_record(NULL::submitted_task, s.spec::jsonb);
    idem   idempotency := jsonb_populate_record(NULL::idempotency, a.idempotency);
    known  idempotency;
    conv   conversations;
    before sessions;
    above  sessions;
    up     text := CASE WHEN a.spawns THEN s.spawned_by END;
    n      bigint;
    spent  text;
    refused jsonb;
BEGIN
    IF idem.key IS NOT NULL THEN
        LOOP
            INSERT INTO idempotency (tenant, key, digest, status, response)
            VALUES (s.tenant, idem.key, idem.digest, idem.status, idem.response)
            ON CONFLICT DO NOTHING;
            EXIT WHEN FOUND;
            SELECT * INTO known FROM idempotency WHERE tenant = s.tenant AND key = idem.key;
            CONTINUE WHEN NOT FOUND;   -- it was removed in between
            IF known.digest <> idem.digest THEN RETURN '{"reused": true}'; END IF;
            RETURN jsonb_build_object('replay', jsonb_build_object('status', known.status, 'response', known.response));
        END LOOP;
    END IF;
    SELECT * INTO before FROM sessions WHERE tenant = s.tenant AND id = s.id;
    IF FOUND THEN
        RETURN jsonb_build_object('session', to_jsonb(before));   -- it was accepted before, but the result was lost
    END IF;
    BEGIN
        IF a.live_quota IS NOT NULL THEN
            -- one submission of a key at a time, so that two cannot both use the last of its quota
            PERFORM pg_advisory_xact_lock(hashtextextended(s.tenant || '/' || s.created_by, 1));
            SELECT count(*) INTO n FROM sessions
             WHERE tenant = s.tenant AND created_by = s.created_by
               AND status IN ('submitted', 'working', 'input_required');
            IF n >= a.live_quota THEN
                refused := jsonb_build_object('quota', n);
                RAISE EXCEPTION 'refused';
            END IF;
        END IF;
        -- Because of these locks a cancel of the tree is either seen here or finds this child. Sessions are locked
        -- before their conversation, as in all functions.
        WHILE up IS NOT NULL LOOP
            SELECT * INTO above FROM sessions WHERE tenant = s.tenant AND id = up FOR SHARE;
            IF (jsonb_populate_record(NULL::recorded_stop, above.cancel_requested::jsonb)).scope = 'tree'
               OR (up = s.spawned_by AND NOT a.deferred AND above.status IN ('completed', 'failed', 'cancelled')) THEN
                refused := '{"cancelled": true}';
                RAISE EXCEPTION 'refused';
            END IF;
            up := above.spawned_by;
        END LOOP;
        IF s.conversation_id = s.id THEN
            INSERT INTO conversations (tenant, id, title, delivery, metadata)
            VALUES (s.tenant, s.id, s.title, a.delivery, a.metadata);
        ELSE
            SELECT * INTO conv FROM conversations WHERE tenant = s.tenant AND id = s.conversation_id FOR NO KEY UPDATE;
            IF conv.id IS NULL THEN
                refused := '{"unknown": true}';
                RAISE EXCEPTION 'refused';
            ELSIF conv.status = 'terminated' OR EXISTS (
                SELECT 1 FROM threads
                 WHERE tenant = s.tenant AND id IN (s.thread_id, a.parent_thread_id) AND terminated_at IS NOT NULL) THEN
                refused := '{"terminated": true}';
                RAISE EXCEPTION 'refused';
            END IF;
            IF a.in_order AND NOT a.queue THEN
                -- No session overtakes a waiting one, not even between two turns. The newest sessions are those that
                -- wait.
                SELECT jsonb_build_object('busy', id) INTO refused
                  FROM (SELECT id, live, status FROM sessions
                         WHERE tenant = s.tenant AND thread_id = s.thread_id ORDER BY id DESC LIMIT 100) newest
                 WHERE NOT live AND newest.status = 'submitted'
                   AND NOT EXISTS (SELECT 1 FROM sessions WHERE tenant = s.tenant AND thread_id = s.thread_id AND live)
                 ORDER BY id LIMIT 1;
                IF refused IS NOT NULL THEN RAISE EXCEPTION 'refused'; END IF;
            END IF;
        END IF;
        spent := enter_budget(s.tenant, s.conversation_id, a.budget);
        -- A session that an outcome starts is accepted even so; it ends at its first call with this reason.
        IF spent IS NOT NULL AND s.trigger <> 'async_subagent_result' THEN
            refused := jsonb_build_object('budget', spent);
            RAISE EXCEPTION 'refused';
        END IF;
        IF NOT a.queue AND s.conversation_id <> s.id THEN
            -- An ending locks the conversation too, so a session that is live here stays live until this transaction
            -- ends.
            SELECT jsonb_build_object('busy', id) INTO refused FROM sessions
             WHERE tenant = s.tenant AND thread_id = s.thread_id AND live;
            IF refused IS NOT NULL THEN RAISE EXCEPTION 'refused'; END IF;
        END IF;
        INSERT INTO threads (tenant, id, conversation_id, parent_thread_id, name, agent, depth, registered, tags, user_id,
                             arguments)
        VALUES (s.tenant, s.thread_id, s.conversation_id, a.parent_thread_id, coalesce(a.thread_name, s.agent), s.agent,
                s.depth, s.subagent IS NOT NULL, ARRAY(SELECT unnest(task.tags)),
                coalesce(task.user_id, (SELECT user_id FROM threads o
                                         WHERE o.tenant = s.tenant AND o.id = a.parent_thread_id)), task.arguments)
        -- New tags are added; a thread keeps its user and the arguments with which it was created.
        ON CONFLICT (tenant, id) DO UPDATE
           SET tags = (threads.tags || ARRAY(SELECT unnest(excluded.tags) EXCEPT SELECT unnest(threads.tags) ORDER BY 1))[:100],
               user_id = coalesce(threads.user_id, excluded.user_id)
         WHERE NOT excluded.tags <@ threads.tags OR (threads.user_id IS NULL AND excluded.user_id IS NOT NULL);
        s.generation := coalesce(conv.generation, 0);
        IF s.conversation_id <> s.id THEN
            -- A continuation starts from the newest session of its thread that has an answer. After a reset the main
            -- thread has none.
            SELECT * INTO before FROM sessions
             WHERE tenant = s.tenant AND thread_id = s.thread_id AND committed
               AND (generation = s.generation OR thread_id <> s.conversation_id) ORDER BY ended_at DESC LIMIT 1;
            s.parent_session_id := coalesce(s.parent_session_id, before.id);
            s.base_head := coalesce(s.base_head, before.head);
            IF NOT a.queue THEN
                a.take := a.take || ARRAY(SELECT id FROM inbox WHERE tenant = s.tenant AND conversation_id = s.conversation_id
                                             AND thread_id = s.thread_id AND taken_by IS NULL AND NOT wake ORDER BY number);
            END IF;
        END IF;
        s.head := s.base_head;
        s.deadline := least(s.deadline, (SELECT deadline FROM budgets
                                          WHERE tenant = s.tenant AND conversation_id = s.conversation_id));
        s.inbox := a.take || ARRAY(SELECT m.id FROM jsonb_populate_recordset(NULL::inbox, a.inbox) m);
        s.live := NOT a.queue;
        -- The clock, not the transaction's time, because it orders the siblings of one step.
        s.created_at := coalesce(s.created_at, clock_timestamp());
        s.updated_at := clock_timestamp();
        INSERT INTO sessions VALUES (s.*);
        INSERT INTO inbox (tenant, id, conversation_id, thread_id, kind, author, parts, visible, taken_by)
        SELECT s.tenant, m.id, s.conversation_id, s.thread_id, m.kind, m.author, m.parts, m.visible, s.id
          FROM jsonb_populate_recordset(NULL::inbox, a.inbox) m
        -- It was stored for a running session, which ended without reading it.
        ON CONFLICT (tenant, id) DO UPDATE SET taken_by = excluded.taken_by, unsignalled = false
         WHERE inbox.taken_by IS NULL;
        SELECT jsonb_build_object('read_by', i.taken_by) INTO refused FROM inbox i
         WHERE i.tenant = s.tenant AND i.taken_by <> s.id
           AND i.id IN (SELECT m.id FROM jsonb_populate_recordset(NULL::inbox, a.inbox) m);
        IF refused IS NOT NULL THEN RAISE EXCEPTION 'refused'; END IF;
        INSERT INTO file_uses (tenant, file_id, session_id)
        SELECT DISTINCT s.tenant, f, s.id FROM unnest((task.context).files || (task.config).repository
            || ARRAY(SELECT value FROM jsonb_each_text((task.config).repositories))) f WHERE f IS NOT NULL;
        INSERT INTO event_counters (tenant, scope)
        VALUES (s.tenant, 's/' || s.id), (s.tenant, 'c/' || s.conversation_id) ON CONFLICT DO NOTHING;
        INSERT INTO workspaces (tenant, id, version, manifest)
        VALUES (s.tenant, s.workspace_id, CASE a.manifest WHEN '{}' THEN 0 ELSE 1 END, a.manifest)
        ON CONFLICT DO NOTHING;
        IF cardinality(a.mail) > 0 THEN
            -- Planned for these very ids: a plan for any number of them may compare each row with each id.
            EXECUTE 'UPDATE mailbox SET delivered_to = $1
                      WHERE tenant = $2 AND delivered_to IS NULL AND message_id = ANY ($3)'
              USING s.id, s.tenant, a.mail;
            GET DIAGNOSTICS n = ROW_COUNT;
            IF n <> cardinality(a.mail) THEN
                refused := '{"mail_taken": true}';
                RAISE EXCEPTION 'refused';
            END IF;
        END IF;
        IF cardinality(a.take) > 0 THEN
            UPDATE inbox SET taken_by = s.id, entered = false WHERE tenant = s.tenant AND id = ANY (a.take);
            UPDATE mailbox SET delivered_to = s.id   -- the outcomes that its messages deliver
             WHERE tenant = s.tenant AND delivered_to IS NULL AND message_id = ANY (a.take);
        END IF;
        INSERT INTO credentials (tenant, owner, name, rules, secret)
        SELECT s.tenant, c.owner, c.name, c.rules, c.secret FROM jsonb_populate_recordset(NULL::credentials, a.credentials) c;
        INSERT INTO face_requests (tenant, face, public_id, session_id, part, request, digest)
        SELECT s.tenant, f.face, f.public_id, f.session_id, f.part, f.request, f.digest
          FROM jsonb_populate_record(NULL::face_requests, a.face) f WHERE f.public_id IS NOT NULL;
        PERFORM emit_events(s.tenant, s.conversation_id, (
            SELECT jsonb_agg(jsonb_build_object(
                       'tenant', s.tenant, 'session_id', s.id, 'conversation_id', s.conversation_id, 'type', e.type,
                       'terminal', false, 'at', s.created_at, 'data', e.data::text) ORDER BY e.type DESC)
              FROM (VALUES ('task_submitted', jsonb_build_object(
                                'agent', s.agent, 'agent_version', s.agent_version, 'title', s.title)),
                           ('mailbox_updated', '{}')) AS e(type, data)
             WHERE e.type = 'task_submitted' OR cardinality(a.mail) > 0));
        PERFORM append_audit(s.tenant, s.conversation_id,
            CASE WHEN s.spawned_by IS NOT NULL THEN 'session ' || s.spawned_by
                 WHEN s.trigger <> 'async_subagent_result' THEN s.created_by END,   -- nobody in particular requested a wake
            'submit', s.id, s.trigger,
            s.spec || coalesce((SELECT string_agg(parts, '' ORDER BY ordinality)
                                  FROM jsonb_populate_recordset(NULL::inbox, a.inbox) WITH ORDINALITY), ''));
        PERFORM append_audit(s.tenant, s.conversation_id, s.created_by, 'put_credential', s.id, c.owner || '/' || c.name, c.rules)
           FROM jsonb_populate_recordset(NULL::credentials, a.credentials) c;
    EXCEPTION
        WHEN unique_violation THEN
            SELECT jsonb_build_object('busy', id) INTO refused FROM sessions
             WHERE tenant = s.tenant AND thread_id = s.thread_id AND live;
            IF refused IS NULL THEN RAISE; END IF;
        WHEN raise_exception THEN
            IF refused IS NULL THEN RAISE; END IF;
    END;
    IF refused IS NOT NULL THEN
        SELECT * INTO before FROM sessions WHERE tenant = s.tenant AND id = s.id;
        IF FOUND THEN   -- by an earlier attempt, whose transaction was committed while this one waited for a lock
            RETURN jsonb_build_object('session', to_jsonb(before));
        END IF;
        DELETE FROM idempotency WHERE tenant = s.tenant AND key = idem.key;  -- a refused request leaves no record
        RETURN refused;
    END IF;
    IF s.conversation_id <> s.id THEN
        UPDATE conversations SET updated_at = now() WHERE tenant = s.tenant AND id = s.conversation_id;
    END IF;
    RETURN jsonb_build_object('session', to_jsonb(s));
END $$;
