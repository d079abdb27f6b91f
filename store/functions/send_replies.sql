-- Writes the deliveries to the channel of a conversation: the answer of its root thread or why there is none, the
-- notice that earlier messages are lost, and every input request. Called in the transaction that writes the events; one
-- delivery per event, to the address's own connector.
CREATE OR REPLACE FUNCTION send_replies(p_events jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM jsonb_populate_recordset(NULL::new_notice, p_events) e
                     JOIN channels c ON c.tenant = e.tenant AND c.conversation_id = e.conversation_id) THEN
        RETURN;
    END IF;
    INSERT INTO deliveries (tenant, id, subscription_id, conversation_id, event, session_id, seq, body)
    SELECT s.tenant, sortable_id(k.id || '/' || s.id || '/' || e.seq), k.id, s.conversation_id, r.event, s.id, e.seq,
           jsonb_build_object('type', r.event, 'timestamp', e.at, 'data', jsonb_build_object(
               'connector', c.connector, 'channel_id', c.channel_id, 'user_id', c.user_id,
               'thread', (task.channel).thread, 'in_reply_to', (task.channel).message_id,
               'conversation_id', s.conversation_id, 'task_id', s.id, 'agent', s.agent, 'status', s.status, 'text', r.text)
               || CASE r.event WHEN 'reply' THEN '{}' ELSE jsonb_strip_nulls(j.d - 'question') END)::text
      FROM jsonb_populate_recordset(NULL::new_notice, p_events) WITH ORDINALITY e
      JOIN sessions s ON s.tenant = e.tenant AND s.id = e.session_id
      -- sessions from before a reset send no replies
      JOIN conversations v ON v.tenant = s.tenant AND v.id = s.conversation_id AND v.generation = s.generation
      JOIN channels c ON c.tenant = s.tenant AND c.conversation_id = s.conversation_id
      JOIN connectors k ON k.tenant = c.tenant AND k.name = c.connector
      CROSS JOIN LATERAL jsonb_populate_record(NULL::submitted_task, s.spec::jsonb) task
      CROSS JOIN LATERAL (SELECT e.data::jsonb AS d) j
      CROSS JOIN LATERAL (SELECT string_agg(E'\n- ' || o, '' ORDER BY n) AS listed
                            FROM jsonb_array_elements_text(j.d -> 'options') WITH ORDINALITY x(o, n)) options
      CROSS JOIN LATERAL (SELECT CASE e.type WHEN 'input_required' THEN 'input_required' ELSE 'reply' END AS event,
                                 CASE e.type WHEN 'input_required' THEN concat(j.d ->> 'question', options.listed)
                                      WHEN 'task_completed' THEN s.output
                                      WHEN 'context_lost' THEN j.d ->> 'text'
                                      ELSE 'This could not be answered: ' || coalesce(s.error, s.reason, 'it failed')
                                 END AS text) r
     WHERE (e.type = 'input_required'
            OR (e.type IN ('task_completed', 'task_failed', 'context_lost') AND s.thread_id = s.conversation_id))
       AND btrim(coalesce(r.text, ''), E' \n\r\t.') NOT IN ('', 'NO_MESSAGE')   -- as in domain/channels.py
       -- a scheduled run that found nothing to do, as in give_notice
       AND (e.type <> 'task_completed' OR btrim(s.output, E' \n\r\t') IS DISTINCT FROM (task.schedule).silent_reply)
       AND (k.kind <> 'webhook' OR k.target <> '')
     ORDER BY e.ordinality;
END $$;
