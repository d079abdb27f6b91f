-- The connector that a request without an API key names. It decides the tenant, so this runs with its owner's rights.
CREATE OR REPLACE FUNCTION find_connector(p_id text) RETURNS SETOF connectors LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT * FROM connectors WHERE id = p_id
$$;
