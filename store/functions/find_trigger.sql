-- The trigger that an event without an API key names: by its id, or by its name in the default tenant. It decides the
-- tenant, so this runs with its owner's rights.
CREATE OR REPLACE FUNCTION find_trigger(p_name text) RETURNS SETOF triggers LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT * FROM triggers WHERE (id = p_name OR (tenant = 'default' AND name = p_name)) AND deleted_at IS NULL
     ORDER BY id <> p_name LIMIT 1
$$;
