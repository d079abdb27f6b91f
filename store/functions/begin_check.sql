-- Records a command of a session's acceptance criteria before it runs, for the ledger and the audit log; `p` is a
-- CheckBegin. After a crash it runs once more, under the same key.
CREATE OR REPLACE FUNCTION begin_check(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n check_begin := jsonb_populate_record(NULL::check_begin, p);
    c tool_calls;
BEGIN
    PERFORM check_run(n.tenant, n.session_id, n.run, true, false);
    INSERT INTO tool_calls (tenant, node, call_index, session_id, tool, effect, holder, attempt)
    VALUES (n.tenant, n.node, n.call_index, n.session_id, n.tool, 'idempotent', n.tool, 1)
    ON CONFLICT (tenant, node, call_index) DO UPDATE
       SET state = 'started', ended_at = NULL, attempt = tool_calls.attempt + 1
    RETURNING * INTO c;
    PERFORM begin_effect(c, n.kind, n.description, false, n.actor, n.command);
END $$;
