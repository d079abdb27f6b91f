-- The outcomes that a fire would take: those for the root thread, except those already in its inbox.
CREATE OR REPLACE FUNCTION held_mail(p_tenant text, p_conversation text) RETURNS SETOF mailbox LANGUAGE sql STABLE AS $$
    SELECT m.* FROM mailbox m
     WHERE m.tenant = p_tenant AND m.conversation_id = p_conversation AND m.thread_id = p_conversation
       AND m.delivered_to IS NULL
       AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.tenant = m.tenant AND i.id = m.message_id AND i.taken_by IS NULL)
$$;
