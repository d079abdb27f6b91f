-- The events of a call with the arguments that the model gave, unless they are long: `tool_called` has a line about them.
-- A reply with \u0000 in it, which PostgreSQL reads in no JSON, keeps that line alone.
CREATE OR REPLACE FUNCTION with_arguments(p_events jsonb, p_tenant text, p_node text, p_index integer) RETURNS jsonb
LANGUAGE sql AS $$
    WITH given AS (
        SELECT (b -> 'arguments')::text AS arguments
          FROM messages m
         CROSS JOIN LATERAL json_array_elements(CASE WHEN strpos(m.body, '\u0000') > 0 THEN '[]'::json
                                                     ELSE m.body::json -> 'content' END) WITH ORDINALITY AS x(b, place)
         WHERE m.tenant = p_tenant AND m.id = p_node AND b ->> 'type' = 'tool_call'
         ORDER BY place OFFSET p_index LIMIT 1
    )
    SELECT coalesce((SELECT jsonb_agg(e || jsonb_build_object('data', left(e ->> 'data', -1) || ', "arguments": ' || g.arguments || '}'))
                       FROM jsonb_array_elements(p_events) e, given g WHERE length(g.arguments) <= 4000), p_events)
$$;
