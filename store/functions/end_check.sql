-- Notes how a command of the acceptance criteria ended.
CREATE OR REPLACE FUNCTION end_check(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_run(p ->> 'tenant', p ->> 'session_id', p ->> 'run', false, false);
    UPDATE tool_calls SET state = p ->> 'state', result = p ->> 'text', ended_at = now()
     WHERE tenant = p ->> 'tenant' AND node = p ->> 'node' AND call_index = (p ->> 'index')::int;
    PERFORM end_effect(p);
END $$;
