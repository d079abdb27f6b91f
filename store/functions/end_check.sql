-- Notes how a command of the acceptance criteria ended; `p` is a CheckEnd.
CREATE OR REPLACE FUNCTION end_check(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n tool_calls := jsonb_populate_record(NULL::tool_calls, p);
BEGIN
    PERFORM check_run(n.tenant, n.session_id, p ->> 'run', false, false);
    UPDATE tool_calls SET state = n.state, result = n.result, ended_at = now()
     WHERE tenant = n.tenant AND node = n.node AND call_index = n.call_index;
    PERFORM end_effect(p);
END $$;
