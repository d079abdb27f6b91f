-- Sessions of all tenants that were accepted and that no worker has begun, at most `p_most`; a number only, so it may run
-- with its owner's rights.
CREATE OR REPLACE FUNCTION count_waiting(p_most integer) RETURNS bigint LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT count(*) FROM (SELECT FROM sessions s WHERE s.status = 'submitted' AND s.live LIMIT p_most) AS waiting
$$;
