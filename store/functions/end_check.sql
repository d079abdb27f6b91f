-- Records how a command of the acceptance criteria ended; `p` is a CheckEnd.
CREATE OR REPLACE FUNCTION end_check(p jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n check_end := jsonb_populate_record(NULL::check_end, p);
    c tool_calls;
BEGIN
    PERFORM check_run(n.tenant, n.session_id, n.run, false, false);
    UPDATE tool_calls SET state = n.state, result = n.result, ended_at = now()
     WHERE tenant = n.tenant AND node = n.node AND call_index = n.call_index RETURNING * INTO c;
    PERFORM end_effect(c, n.actor, false, NULL);
END $$;
