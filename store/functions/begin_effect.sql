-- Notes what a claimed call will touch, for the ledger and the audit log. True: its session is a dry run, and the call is
-- to be described instead of made.
CREATE OR REPLACE FUNCTION begin_effect(p jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    t   text := p ->> 'tenant';
    s   sessions%ROWTYPE;
    is_dry boolean;
BEGIN
    IF p ->> 'kind' IS NULL THEN RETURN false; END IF;
    SELECT * INTO s FROM sessions WHERE tenant = t AND id = p ->> 'session_id';
    is_dry := s.dry_run AND coalesce((p ->> 'withheld')::boolean, false);
    UPDATE tool_calls SET kind = p ->> 'kind', description = p ->> 'description', dry = is_dry
     WHERE tenant = t AND node = p ->> 'node' AND call_index = (p ->> 'index')::int;
    PERFORM append_audit(t, s.conversation_id, coalesce(p ->> 'actor', 'agent ' || s.agent),
                         'tool_begun', s.id,
                         concat_ws(' ', p ->> 'tool', (p ->> 'node') || ':' || (p ->> 'index'), CASE WHEN is_dry THEN 'dry' END),
                         coalesce(p ->> 'command', (SELECT body FROM messages WHERE tenant = t AND id = p ->> 'node')));
    RETURN is_dry;
END $$;
