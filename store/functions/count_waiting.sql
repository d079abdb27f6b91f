-- The tasks that were accepted and that no worker has begun: of all tenants, of one of them, and how many tenants have
-- any. What a session delegates waits too, but no caller sent it. Numbers only, so it may run with its owner's rights.
CREATE OR REPLACE FUNCTION count_waiting(p_tenant text, OUT total bigint, OUT own bigint, OUT tenants bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT count(*), count(*) FILTER (WHERE s.tenant = p_tenant), count(DISTINCT s.tenant)
      FROM sessions s WHERE s.status = 'submitted' AND s.live AND s.spawned_by IS NULL
$$;
