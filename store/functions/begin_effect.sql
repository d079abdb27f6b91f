-- Notes what a claimed call will touch, for the ledger and the audit log; `p` is a ToolClaim or a CheckBegin. True: its
-- session is a dry run, and the call is to be described instead of made.
CREATE OR REPLACE FUNCTION begin_effect(p jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    n      tool_calls := jsonb_populate_record(NULL::tool_calls, p);
    s      sessions;
    is_dry boolean;
BEGIN
    IF n.kind IS NULL THEN RETURN false; END IF;
    SELECT * INTO s FROM sessions WHERE tenant = n.tenant AND id = n.session_id;
    is_dry := s.dry_run AND coalesce((p ->> 'withheld')::boolean, false);
    UPDATE tool_calls SET kind = n.kind, description = n.description, dry = is_dry
     WHERE tenant = n.tenant AND node = n.node AND call_index = n.call_index;
    PERFORM append_audit(n.tenant, s.conversation_id, coalesce(p ->> 'actor', 'agent ' || s.agent), 'tool_begun', s.id,
                         concat_ws(' ', n.tool, n.node || ':' || n.call_index, CASE WHEN is_dry THEN 'dry' END),
                         coalesce(p ->> 'command', (SELECT body FROM messages WHERE tenant = n.tenant AND id = n.node)));
    RETURN is_dry;
END $$;
