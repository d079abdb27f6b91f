-- Adds the model's arguments to the events of a call, unless they are long; `tool_called` always has a line about them.
-- PostgreSQL cannot read JSON with \u0000, so the events of such a reply keep only that line.
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
