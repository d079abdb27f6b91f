-- Lets a queued session begin, at the head that its thread has by now. {"busy": id}: another one is live. `p` is a
-- QueuedBegin.
CREATE OR REPLACE FUNCTION begin_queued(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    n      queued_begin := jsonb_populate_record(NULL::queued_begin, p);
    s      sessions;
    before sessions;
    other  text;
BEGIN
    SELECT * INTO s FROM sessions WHERE tenant = n.tenant AND id = n.session_id FOR UPDATE;
    IF s.live OR s.status <> 'submitted' THEN RETURN '{}'; END IF;
    n.take := n.take || ARRAY(SELECT id FROM inbox WHERE tenant = s.tenant AND conversation_id = s.conversation_id
                                 AND thread_id = s.thread_id AND taken_by IS NULL AND NOT wake ORDER BY number);
    SELECT * INTO before FROM sessions
     WHERE tenant = s.tenant AND thread_id = s.thread_id AND committed
       AND (generation = s.generation OR thread_id <> s.conversation_id) ORDER BY ended_at DESC LIMIT 1;
    IF before.handed_to IS NOT NULL AND before.agent = s.agent THEN   -- handed over while this one waited
        SELECT (h.agent).owner, (h.agent).name, (h.agent).version, h.models, h.tools, h.sides
          INTO s.agent_owner, s.agent, s.agent_version, s.models, s.tools, s.sides
          FROM jsonb_populate_record(NULL::successor, before.handed_to::jsonb) h;
    END IF;
    UPDATE sessions SET live = true, agent_owner = s.agent_owner, agent = s.agent, agent_version = s.agent_version,
                        models = s.models, tools = s.tools, sides = s.sides, parent_session_id = before.id,
                        base_head = before.head, head = before.head,
                        deadline = now() + (deadline - created_at), updated_at = now(), inbox = n.take || inbox
     WHERE tenant = s.tenant AND id = s.id;
    UPDATE inbox SET taken_by = s.id, entered = false WHERE tenant = s.tenant AND id = ANY (n.take);
    UPDATE mailbox SET delivered_to = s.id   -- the outcomes that these messages deliver
     WHERE tenant = s.tenant AND delivered_to IS NULL AND message_id = ANY (n.take);
    RETURN '{}';
EXCEPTION WHEN unique_violation THEN
    SELECT id INTO other FROM sessions WHERE tenant = s.tenant AND thread_id = s.thread_id AND live;
    IF other IS NULL THEN RETURN begin_queued(p); END IF;   -- the live session has just ended
    RETURN jsonb_build_object('busy', other);
END $$;
