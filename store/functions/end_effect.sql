-- Notes in the audit log how a call ended, if it touched something or was denied.
CREATE OR REPLACE FUNCTION end_effect(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t   text := p ->> 'tenant';
    c   tool_calls%ROWTYPE;
    denied boolean := coalesce((p ->> 'denied')::boolean, false);
BEGIN
    SELECT * INTO c FROM tool_calls WHERE tenant = t AND node = p ->> 'node' AND call_index = (p ->> 'index')::int;
    IF c.kind IS NOT NULL OR denied THEN
        PERFORM append_audit(t, s.conversation_id, coalesce(p ->> 'actor', 'agent ' || s.agent),
                             CASE WHEN denied THEN 'tool_denied' ELSE 'tool_ended' END, s.id,
                             concat_ws(' ', c.tool, c.node || ':' || c.call_index, c.state, CASE WHEN c.dry THEN 'dry' END,
                                       'by ' || (p ->> 'rule')),   -- a rule is policy, not content that is removed later
                             c.result)
           FROM sessions s WHERE s.tenant = t AND s.id = c.session_id;
    END IF;
END $$;
