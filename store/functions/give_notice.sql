-- Publishes NewNotices (`p_events`) in the tenant's feed and, through the outbox, to every subscription to the event.
-- Called in the transaction that writes the events, so that neither exists without the other. The tenant's counter is
-- locked last, so that the lock is held as briefly as possible.
CREATE OR REPLACE FUNCTION give_notice(p_events jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t    text;
    n    bigint;
    base bigint;
BEGIN
    -- Most tenants have no subscription, and the statement for those who have is long.
    IF EXISTS (SELECT 1 FROM jsonb_populate_recordset(NULL::new_notice, p_events) e
                 JOIN subscriptions sub ON sub.tenant = e.tenant AND sub.status = 'active') THEN
        INSERT INTO deliveries (tenant, id, subscription_id, event, session_id, seq, body)
        SELECT sub.tenant, sortable_id(sub.id || '/' || coalesce(s.id || '/' || e.seq, gen_random_uuid()::text)),
               sub.id, e.type, s.id, e.seq,
               jsonb_build_object(
                   'type', e.type, 'timestamp', e.at,
                   'data', CASE WHEN s.id IS NULL THEN '{}' ELSE jsonb_build_object(
                               'task_id', s.id, 'conversation_id', s.conversation_id, 'title', s.title, 'agent', s.agent,
                               'status', s.status)
                               || CASE WHEN s.spawned_by IS NULL THEN '{}' ELSE jsonb_build_object(
                                      'subagent', coalesce(s.subagent_name, s.agent), 'spawned_by', s.spawned_by) END END
                           || (d.data - 'usage' - 'output')
                           || CASE WHEN d.data ? 'output' THEN jsonb_build_object('output', left(d.data ->> 'output', 2000))
                                   ELSE '{}' END)::text
          FROM jsonb_populate_recordset(NULL::new_notice, p_events) WITH ORDINALITY e
          CROSS JOIN LATERAL (SELECT e.data::jsonb AS data) d
          LEFT JOIN sessions s ON s.tenant = e.tenant AND s.id = e.session_id
          CROSS JOIN LATERAL jsonb_populate_record(NULL::submitted_task, s.spec::jsonb) task
          CROSS JOIN LATERAL (
              SELECT coalesce((task.config).notify, '{}') AS named,
                     -- the subscription that the task names for this kind of request, or for this event
                     (task.config).routes ->>
                         CASE WHEN e.type IN ('input_required', 'input_reminder') THEN d.data ->> 'kind'
                              ELSE e.type END AS routed) c
          JOIN subscriptions sub ON sub.tenant = e.tenant AND sub.status = 'active'
         WHERE CASE
                   -- a recorded rerun: nothing really happened
                   WHEN (jsonb_populate_record(NULL::rerun, s.rerun::jsonb)).recorded THEN false
                   -- a scheduled run that found nothing to do
                   WHEN e.type = 'task_completed'
                        AND btrim(d.data ->> 'output', E' \n\r\t') = (task.schedule).silent_reply THEN false
                   WHEN e.type = 'input_escalated' THEN sub.name = d.data ->> 'to' AND sub.channel <> 'openai'
                   -- OpenAI's events are about background responses: how they ended, or that they wait for their caller
                   WHEN sub.channel = 'openai' THEN
                       e.type = ANY (sub.events) AND s.spawned_by IS NULL
                       AND (sub.every_task OR c.named && ARRAY[sub.name, sub.channel])
                       AND EXISTS (
                           SELECT 1 FROM face_requests f
                            WHERE f.tenant = s.tenant AND f.session_id = s.id AND f.face = 'responses'
                              AND f.request::jsonb -> 'background' = 'true')
                       AND (e.type IN ('task_completed', 'task_failed', 'task_cancelled')
                            OR (e.type = 'input_required' AND (
                                d.data ->> 'kind' = 'external_result'
                                OR (d.data ->> 'kind' IN ('tool_approval', 'plan_approval') AND EXISTS (
                                    SELECT 1 FROM face_requests f
                                     WHERE f.tenant = s.tenant AND f.session_id = s.id AND f.face = 'responses' AND f.part = 1
                                       AND f.request::jsonb #>> '{errand,approvals}' = 'caller')))))
                   -- the end of a subagent is reported to its parent, and only to subscriptions that ask for subagents
                   WHEN e.type LIKE 'task\_%' AND s.spawned_by IS NOT NULL AND NOT sub.subagents THEN false
                   ELSE (CASE e.type WHEN 'input_reminder' THEN 'input_required' ELSE e.type END) = ANY (sub.events)
                        AND (sub.every_task OR c.named && ARRAY[sub.name, sub.channel])
                        OR coalesce(c.routed IN (sub.name, sub.channel), false)
               END
         ORDER BY e.ordinality;
    END IF;
    PERFORM send_replies(p_events);
    FOR t, n IN SELECT e.tenant, count(*) FROM jsonb_populate_recordset(NULL::new_notice, p_events) e GROUP BY 1 ORDER BY 1 LOOP
        INSERT INTO event_counters AS c (tenant, scope, last) VALUES (t, 't/', n)
        ON CONFLICT (tenant, scope) DO UPDATE SET last = c.last + n RETURNING c.last - n INTO base;
        INSERT INTO notices (tenant, number, type, session_id, conversation_id, created_by, at, data)
        SELECT t, base + row_number() OVER (ORDER BY e.ordinality), e.type, e.session_id, e.conversation_id,
               -- not joined: a plan for many notices would read all sessions
               coalesce((SELECT s.created_by FROM sessions s WHERE s.tenant = t AND s.id = e.session_id), ''), e.at,
               (e.data::jsonb - 'usage' - 'output')::text
          FROM jsonb_populate_recordset(NULL::new_notice, p_events) WITH ORDINALITY e
         WHERE e.tenant = t;
        PERFORM pg_notify('events', t || '/*/*');
    END LOOP;
END $$;
