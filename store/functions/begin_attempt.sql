-- Makes an attempt the newest of its call: from here on the session's log refuses events of earlier ones.
CREATE OR REPLACE FUNCTION begin_attempt(p_tenant text, p_session text, p_call text, p_attempt integer) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO call_attempts AS a (tenant, session_id, call, attempt)
    SELECT p_tenant, p_session, p_call, p_attempt WHERE p_attempt > 1   -- the first one has nothing to refuse
    ON CONFLICT (tenant, session_id, call) DO UPDATE SET attempt = excluded.attempt WHERE a.attempt < excluded.attempt
$$;
