-- Notes a command of a session's acceptance criteria before it runs, for the ledger and the audit log. After a crash it
-- runs once more, under the same key.
CREATE OR REPLACE FUNCTION begin_check(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_run(p ->> 'tenant', p ->> 'session_id', p ->> 'run', true, false);
    INSERT INTO tool_calls (tenant, node, call_index, session_id, tool, effect, holder, attempt)
    VALUES (p ->> 'tenant', p ->> 'node', (p ->> 'index')::int, p ->> 'session_id', p ->> 'tool', 'idempotent', p ->> 'tool', 1)
    ON CONFLICT (tenant, node, call_index) DO UPDATE
       SET state = 'started', ended_at = NULL, attempt = tool_calls.attempt + 1;
    PERFORM begin_effect(p);
END $$;
