-- Refuses the writes of a workflow run once another run owns the session: after a reset, or after the
-- workflow was deleted and started again. A session that no run has claimed yet refuses nothing, and a caller that is
-- not a run is never refused. With `active`, a session that has ended refuses too: nothing may begin. The row is
-- locked, so that the session does not end before the caller's transaction; with `locks` for callers that write it, so
-- that a run that takes over afterwards reads all that was committed.
CREATE OR REPLACE FUNCTION check_run(t text, sid text, run text, active boolean, locks boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    mine text;
    how  text;
BEGIN
    IF locks THEN
        SELECT run_id, status INTO mine, how FROM sessions WHERE tenant = t AND id = sid FOR NO KEY UPDATE;
    ELSE
        SELECT run_id, status INTO mine, how FROM sessions WHERE tenant = t AND id = sid FOR KEY SHARE;
    END IF;
    IF run IS NULL THEN RETURN; END IF;
    IF active AND how IN ('completed', 'failed', 'cancelled') THEN
        RAISE EXCEPTION 'The session has ended: %.', how USING ERRCODE = 'ER002';
    END IF;
    IF mine <> run THEN
        RAISE EXCEPTION 'Another run has this session.' USING ERRCODE = 'ER001',
            DETAIL = jsonb_build_object('tenant', t, 'session_id', sid, 'run_id', mine);
    END IF;
END $$;
