-- Whether the content of a conversation has been kept long enough, and no other conversation continues from it.
CREATE OR REPLACE FUNCTION removable(p_tenant text, p_conversation text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (
               SELECT 1 FROM sessions WHERE tenant = p_tenant AND conversation_id = p_conversation
                  AND content_removed_at IS NULL AND (keep_until IS NULL OR keep_until > now()))
       AND NOT EXISTS (
               SELECT 1 FROM sessions own JOIN sessions fork ON fork.tenant = own.tenant AND fork.parent_session_id = own.id
                WHERE own.tenant = p_tenant AND own.conversation_id = p_conversation
                  AND fork.conversation_id <> own.conversation_id AND fork.content_removed_at IS NULL)
$$;
