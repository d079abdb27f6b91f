-- Keeps what is known of a call that continues elsewhere, if this attempt still holds the claim; false: a newer one does.
-- `p` is a ToolHold.
CREATE OR REPLACE FUNCTION hold_tool(p jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    n tool_hold := jsonb_populate_record(NULL::tool_hold, p);
BEGIN
    PERFORM check_run(n.tenant, n.session_id, n.run, false, false);
    UPDATE tool_calls SET remote = n.remote
     WHERE tenant = n.tenant AND node = n.node AND call_index = n.call_index
       AND holder = n.holder AND attempt = n.attempt AND state = 'started';
    RETURN FOUND;
END $$;
