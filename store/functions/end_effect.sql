-- Notes in the audit log how a call ended, if it touched something or was denied; `p` is a ToolClaim, a ToolCommit or a
-- CheckEnd.
CREATE OR REPLACE FUNCTION end_effect(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n      tool_calls := jsonb_populate_record(NULL::tool_calls, p);
    c      tool_calls;
    denied boolean := coalesce((p ->> 'denied')::boolean, false);
BEGIN
    SELECT * INTO c FROM tool_calls WHERE tenant = n.tenant AND node = n.node AND call_index = n.call_index;
    IF c.kind IS NOT NULL OR denied THEN
        PERFORM append_audit(c.tenant, s.conversation_id, coalesce(p ->> 'actor', 'agent ' || s.agent),
                             CASE WHEN denied THEN 'tool_denied' ELSE 'tool_ended' END, s.id,
                             concat_ws(' ', c.tool, c.node || ':' || c.call_index, c.state, CASE WHEN c.dry THEN 'dry' END,
                                       'by ' || (p ->> 'rule')),   -- a rule is policy, not content that is removed later
                             c.result)
           FROM sessions s WHERE s.tenant = c.tenant AND s.id = c.session_id;
    END IF;
END $$;
