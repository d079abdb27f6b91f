-- The replies of sessions' agents, oldest first: the assistant messages on the path to each session's head, among its
-- last p_depth messages.
CREATE OR REPLACE FUNCTION session_replies(p_tenant text, p_sessions text[], p_heads text[], p_depth int)
RETURNS TABLE (session_id text, reply text) LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- Planned for these very ids: a plan that was made while the tables were small reads all messages for each of them.
    RETURN QUERY EXECUTE '
        WITH RECURSIVE walk AS (
            SELECT m.parent, m.session_id, CASE m.kind WHEN ''assistant'' THEN m.body END AS reply, 1 AS depth
              FROM unnest($2, $3) AS wanted(id, head)
              JOIN messages m ON m.tenant = $1 AND m.id = wanted.head AND m.session_id = wanted.id
            UNION ALL
            SELECT m.parent, m.session_id, CASE m.kind WHEN ''assistant'' THEN m.body END, depth + 1 FROM walk
              JOIN messages m ON m.tenant = $1 AND m.id = walk.parent AND m.session_id = walk.session_id
             WHERE depth < $4)
        SELECT session_id, reply FROM walk WHERE reply IS NOT NULL ORDER BY depth DESC'
      USING p_tenant, p_sessions, p_heads, p_depth;
END $$;
