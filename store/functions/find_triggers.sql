-- The triggers that an event without a key may mean: by id one, by name one of each tenant. The signature decides; so it
-- runs with its owner's rights.
CREATE OR REPLACE FUNCTION find_triggers(p_name text, p_limit int) RETURNS SETOF triggers LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT * FROM triggers WHERE (name = p_name OR id = p_name) AND deleted_at IS NULL ORDER BY created_at LIMIT p_limit
$$;
