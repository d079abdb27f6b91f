-- Records in the audit log how a call ended, if it changed something or `p_rule` denied it; `c` is its current row.
CREATE OR REPLACE FUNCTION end_effect(c tool_calls, p_actor text, p_denied boolean, p_rule text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF c.kind IS NULL AND NOT p_denied THEN RETURN; END IF;
    PERFORM append_audit(c.tenant, s.conversation_id, coalesce(p_actor, 'agent ' || s.agent),
                         CASE WHEN p_denied THEN 'tool_denied' ELSE 'tool_ended' END, s.id,
                         concat_ws(' ', c.tool, c.node || ':' || c.call_index, c.state, CASE WHEN c.dry THEN 'dry' END,
                                   'by ' || p_rule),   -- a rule is policy, not content that retention removes
                         c.result)
       FROM sessions s WHERE s.tenant = c.tenant AND s.id = c.session_id;
END $$;
