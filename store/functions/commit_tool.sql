-- Commits the result of a tool call, if this attempt still holds the claim; false: a newer one does. `p` is a
-- ToolCommit.
CREATE OR REPLACE FUNCTION commit_tool(p jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    n    tool_commit := jsonb_populate_record(NULL::tool_commit, p);
    done record;
BEGIN
    PERFORM check_run(n.tenant, n.session_id, n.run, false, false);
    SELECT * INTO done FROM record_tool(n);
    PERFORM append_events(n.batch, false, done.events);
    PERFORM end_effect(done.c, n.actor, n.denied, n.rule);
    RETURN done.events IS NOT NULL;
END $$;
