-- Ends a session once; `p` is a SessionEnding. The outcome for its spawner is written in the same transaction. A
-- session that ends without an answer of the model releases the mailbox messages that it was opened with.
-- Returns a WrittenEnding of store/sessions.py, or the cancel that was accepted before, which wins. {"moved": true}: the
-- session has committed more than the ending was computed from, and nothing is written.
CREATE OR REPLACE FUNCTION finish_session(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    e       session_ending := jsonb_populate_record(NULL::session_ending, p);
    t       text := (e.ref).tenant;
    sid     text := (e.ref).session_id;
    s       sessions;
    spawner sessions;
    -- a reply may consist of tool calls only
    commits boolean := e.output IS NOT NULL OR e.replied;
    mail    mailbox;
    emitted jsonb;
    mail_changed boolean := false;
    given_back jsonb;
    held    boolean := false;
    closed  tool_calls[];
BEGIN
    SELECT * INTO s FROM sessions WHERE tenant = t AND id = sid FOR UPDATE;
    IF s.status NOT IN ('completed', 'failed', 'cancelled') THEN
        PERFORM check_run(t, sid, e.run, false, false);
        -- Once a cancel was accepted, the session can only end as cancelled, even if it was about to end otherwise.
        IF s.cancel_requested IS NOT NULL AND e.status <> 'cancelled' THEN
            RETURN jsonb_build_object('cancel_requested', s.cancel_requested);
        END IF;
        IF s.version <> e.seen THEN RETURN jsonb_build_object('moved', true); END IF;
        -- Lock the conversation while the session is still the live one of its thread: a session that is accepted after
        -- it has locked the conversation and would wait for this transaction.
        UPDATE conversations SET updated_at = now() WHERE tenant = t AND id = s.conversation_id;
        INSERT INTO messages (tenant, id, parent, session_id, idem, kind, author, line, side, step, body)
        SELECT t, node.id, node.parent, s.id, node.id || '/repair', node.kind, node.author, node.line, node.side, node.step,
               node.body
          FROM jsonb_populate_recordset(NULL::messages, e.nodes) node ON CONFLICT DO NOTHING;
        UPDATE sessions SET status = e.status, reason = e.reason, partial = e.partial, error_type = e.error_type,
                            error = e.error, output = e.output, typed = e.typed, head = e.head,
                            usage = coalesce(e.usage, usage), step = coalesce(e.step, step),
                            version = greatest(version, e.version), retry = NULL, live = false, committed = commits,
                            keep_until = now() + retention_ms * interval '1 millisecond',
                            ended_at = now(), updated_at = now()
         WHERE tenant = t AND id = s.id RETURNING * INTO s;
        DELETE FROM reservations WHERE tenant = t AND session_id = s.id;
        DELETE FROM credentials WHERE tenant = t AND owner = 'task/' || s.id;
        -- A session that has ended does not wait for answers.
        UPDATE input_requests SET status = CASE e.reason WHEN 'input_timeout' THEN 'expired' ELSE 'withdrawn' END
         WHERE tenant = t AND session_id = s.id AND status = 'open';
        -- Nor does any of its calls run: such a call is a question that nobody answered, or a tool whose worker died.
        WITH ended AS (
            UPDATE tool_calls SET state = CASE WHEN effect = 'once' THEN 'unknown' ELSE 'cancelled' END,
                                  result = e.open_result, ended_at = now()
             WHERE tenant = t AND session_id = s.id AND state = 'started'
            RETURNING tool_calls)
        SELECT array_agg(tool_calls ORDER BY (tool_calls).started_at, (tool_calls).node, (tool_calls).call_index)
          INTO closed FROM ended;
        IF NOT commits THEN
            -- A silent message stays for the next session that answers.
            UPDATE inbox SET taken_by = NULL, entered = false WHERE tenant = t AND taken_by = s.id AND NOT wake;
            UPDATE mailbox m SET delivered_to = NULL, given_back_by = s.id
              FROM sessions source
             WHERE m.tenant = t AND m.conversation_id = s.conversation_id AND m.delivered_to = s.id
               AND source.tenant = t AND source.id = m.source_session_id AND NOT source.blocking;   -- the outcome of a blocking child is for this session only
            mail_changed := FOUND;
        END IF;
        IF s.spawned_by IS NOT NULL AND (s.delivery NOT IN ('explicit', 'report')
                                         OR (s.delivery = 'report' AND e.status = 'failed')) THEN
            SELECT * INTO spawner FROM sessions WHERE tenant = t AND id = s.spawned_by;
            -- In a cancelled tree no thread is woken: the outcome waits for the next message.
            held := coalesce(s.delivery IN ('wake', 'report') AND NOT s.blocking
                             AND (jsonb_populate_record(NULL::recorded_stop, spawner.cancel_requested::jsonb)).scope = 'tree',
                             false);
            INSERT INTO mailbox (tenant, message_id, conversation_id, thread_id, source_session_id, source_type,
                                 subagent_name, given_back_by, delivered_to)
            VALUES (t, e.message_id, s.conversation_id, spawner.thread_id, s.id,
                    CASE WHEN e.status = 'completed' OR (e.status = 'cancelled' AND commits)
                         THEN 'subagent_result' ELSE 'subagent_failed' END,
                    coalesce(s.subagent_name, s.agent),
                    CASE WHEN held AND spawner.thread_id <> s.conversation_id THEN s.id END,
                    CASE WHEN s.blocking THEN s.spawned_by END);   -- the waiting tool call delivers it
            mail_changed := mail_changed OR NOT s.blocking;
            IF s.delivery IN ('wake', 'report') AND NOT s.blocking AND NOT held THEN
                INSERT INTO inbox (tenant, id, conversation_id, thread_id, kind, author, parts, source)
                VALUES (t, e.message_id, s.conversation_id, spawner.thread_id, 'outcome',
                        coalesce(s.subagent_name, s.agent), '[]', s.id);
            END IF;
        END IF;
        SELECT coalesce(jsonb_agg(event ORDER BY n), '[]') INTO emitted
          FROM jsonb_array_elements(e.events) WITH ORDINALITY AS x(event, n)
         WHERE event ->> 'type' <> 'mailbox_updated' OR mail_changed;
        SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'tenant', t, 'session_id', s.id, 'conversation_id', s.conversation_id, 'type', 'tool_returned',
                   'terminal', false, 'at', now(),
                   'data', jsonb_build_object('tool', tool, 'state', state, 'preview', result)::text)), '[]') || emitted
          INTO emitted FROM unnest(closed);
        PERFORM emit_events(t, s.conversation_id, emitted);
        PERFORM end_effect(call, NULL, false, NULL) FROM unnest(closed) call;
        PERFORM append_audit(t, s.conversation_id, CASE e.status WHEN 'completed' THEN 'agent ' || s.agent END, 'end',
                             s.id, e.status || ' ' || e.reason, e.output);
    END IF;
    SELECT * INTO mail FROM mailbox WHERE tenant = t AND source_session_id = s.id;
    SELECT coalesce(jsonb_agg(message_id ORDER BY number), '[]') INTO given_back FROM mailbox
     WHERE tenant = t AND conversation_id = s.conversation_id AND given_back_by = s.id AND delivered_to IS NULL;
    -- Read from the rows, because a repeated call must get the same result.
    held := coalesce(s.delivery IN ('wake', 'report') AND NOT s.blocking, false) AND mail.message_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.tenant = t AND i.id = mail.message_id);
    RETURN jsonb_build_object('status', s.status, 'reason', s.reason, 'partial', s.partial, 'head', s.head,
                              'output', s.output, 'committed', s.committed, 'mail', mail.message_id,
                              'given_back', given_back, 'held', held,
                              'has_workflow', (SELECT c.has_workflow FROM conversations c
                                                WHERE c.tenant = t AND c.id = s.conversation_id));
END $$;
