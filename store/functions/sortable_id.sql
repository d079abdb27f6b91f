-- An id as domain/ids.py makes them: the time, then a unique part (hexadecimal digits are in the alphabet).
CREATE OR REPLACE FUNCTION sortable_id(p_key text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', ((ms >> (5 * place)) & 31)::int + 1, 1), '' ORDER BY place DESC)
           || left(encode(sha256(convert_to(p_key, 'UTF8')), 'hex'), 16)
      FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms) t, generate_series(0, 9) AS place
$$;
