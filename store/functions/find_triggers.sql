-- The triggers that an event without an API key may address: one by id, or one of each tenant by name. The signature
-- decides between them, so this runs with its owner's rights.
CREATE OR REPLACE FUNCTION find_triggers(p_name text, p_limit int) RETURNS SETOF triggers LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT * FROM triggers WHERE (name = p_name OR id = p_name) AND deleted_at IS NULL ORDER BY created_at LIMIT p_limit
$$;
