-- Records what a claimed call will change, for the ledger and the audit log. `p_command`: the command, if no message of
-- the model contains it. True: its session is a dry run, so the call must be described instead of made.
CREATE OR REPLACE FUNCTION begin_effect(c tool_calls, p_kind text, p_description text, p_withheld boolean, p_actor text,
                                        p_command text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    s      sessions;
    is_dry boolean;
BEGIN
    SELECT * INTO s FROM sessions WHERE tenant = c.tenant AND id = c.session_id;
    is_dry := s.dry_run AND p_withheld;
    UPDATE tool_calls SET kind = p_kind, description = p_description, dry = is_dry
     WHERE tenant = c.tenant AND node = c.node AND call_index = c.call_index;
    PERFORM append_audit(c.tenant, s.conversation_id, coalesce(p_actor, 'agent ' || s.agent), 'tool_begun', s.id,
                         concat_ws(' ', c.tool, c.node || ':' || c.call_index, CASE WHEN is_dry THEN 'dry' END),
                         coalesce(p_command, (SELECT body FROM messages WHERE tenant = c.tenant AND id = c.node)));
    RETURN is_dry;
END $$;
