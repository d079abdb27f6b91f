-- Sessions of all tenants by status, for operators; numbers only, so it may run with its owner's rights.
CREATE OR REPLACE FUNCTION count_sessions() RETURNS TABLE (status text, n bigint) LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT s.status, count(*) FROM sessions s GROUP BY s.status
$$;
